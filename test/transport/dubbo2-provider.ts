import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubbo2Transport } from '../../src/transport/dubbo/classic.ts'
import { frames, type Frame } from '../../src/transport/dubbo/classic-frame.ts'
import type { Dubbo2Request } from '../../src/transport/dubbo/hessian.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { sendContext } from './send-context.ts'

const call: Dubbo2Request = { service: 'com.acme.Points', method: 'onPaid', types: [], args: [] }

/** A transport to the providers at these ports. */
export function transportTo(t: Test, ports: number[], allow?: string[]) {
  const broker = parseBroker('dubbo2', `dubbo://${ports.map(port => `127.0.0.1:${port}`).join(',')}`)
  if (typeof broker === 'string') throw new Error(broker)
  const transport = dubbo2Transport({
    guard: guard({ allow, embedded: allow === undefined, deny: [] }),
    brokers: new Map<string, Broker>([['dubbo2', broker]]),
    log: { info: () => {}, warn: () => {} }
  })
  t.teardown(() => transport.close())
  const send = (more: Partial<Dubbo2Request> = {}, given: Parameters<typeof sendContext>[0] = {}) =>
    transport.send({ ...call, ...more }, sendContext(given))
  return { transport, send }
}

type Behave = (socket: Socket, frame: Frame) => void

/** A TCP server that reads frames and answers with the bytes that `behave` writes, if any. */
export async function provider(t: Test, behave: Behave, allow?: string[]) {
  const sockets = new Set<Socket>()
  const received: Frame[] = []
  const server = createServer(socket => {
    sockets.add(socket)
    socket.on('error', () => {})
    socket.on('close', () => sockets.delete(socket))
    const parser = frames(10_000_000, frame => {
      received.push({ ...frame, body: Buffer.from(frame.body) })
      behave(socket, frame)
    })
    socket.on('data', chunk => parser.push(chunk))
  })
  const start = async (port: number): Promise<void> => {
    server.listen(port, '127.0.0.1')
    await once(server, 'listening')
  }
  const stop = (): void => {
    for (const socket of sockets) socket.resetAndDestroy()
    server.close()
  }
  await start(0)
  const { port } = server.address() as AddressInfo
  t.teardown(stop)
  return { ...transportTo(t, [port], allow), port, sockets, received, stop, start: () => start(port) }
}
