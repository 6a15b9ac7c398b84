import { createRequire } from 'node:module'
import type { Socket } from 'node:net'

interface Dialing {
  socket?: Socket
  done: boolean
}
/** One try to connect, which ends later than the transport's own: with the server's first PONG. */
export interface Dial {
  signal: AbortSignal
  isOver: boolean
}
interface Options {
  /** Ours, handed on by the client as it hands on all that it does not know. */
  dialing?: Dial
}
/** Of a greeting, which has a few hundred bytes; the client holds a line of any length, and reads it anew with each packet. */
const greetingMost = 1_048_576

type Connect = (this: Dialing, place: unknown, options: Options) => Promise<void>

/**
 * A server that takes a connection and says nothing: the client gives it up after its timeout and forgets the socket, which
 * then stays open for as long as the server does, one more with every try. It has no option for that.
 */
export function closedWhenGivenUp(): void {
  const { NodeTransport } = createRequire(import.meta.resolve('@nats-io/transport-node'))(
    './lib/node_transport.js'
  ) as { NodeTransport?: { prototype: { connect?: Connect } } }
  const connect = NodeTransport?.prototype.connect
  if (!NodeTransport || !connect)
    throw new Error('@nats-io/transport-node has changed: sockets could be left open')
  NodeTransport.prototype.connect = async function (place, options) {
    const { dialing } = options
    const giveUp = (): void => {
      this.done = true
      this.socket?.destroy()
    }
    dialing?.signal.addEventListener('abort', giveUp, { once: true })
    const look = setInterval(() => {
      if (!dialing || dialing.isOver) return clearInterval(look)
      if ((this.socket?.bytesRead ?? 0) > greetingMost) giveUp()
    }, 20)
    await connect.call(this, place, options)
  }
}
