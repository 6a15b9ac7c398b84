// A way to a server that can turn into a black hole: connections stay open, new ones are taken, nothing comes through.
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'

export interface Proxy {
  port: number
  swallow(): void
  /** What was swallowed is gone: what is still connected is cut, as a peer would after its resets. */
  heal(): void
  close(): Promise<void>
}

export async function proxyTo(port: number): Promise<Proxy> {
  const open = new Set<Socket>()
  let swallowing = false
  const cut = () => {
    for (const socket of open) socket.destroy()
  }
  const server = createServer({ noDelay: true }, near => {
    const far = connect({ port, host: '127.0.0.1', noDelay: true })
    for (const [socket, other] of [
      [near, far],
      [far, near]
    ] as const) {
      open.add(socket)
      socket.on('error', () => socket.destroy())
      socket.on('data', data => {
        if (swallowing) return
        if (!other.write(data)) socket.pause()
      })
      socket.on('drain', () => other.resume())
      socket.on('close', () => {
        open.delete(socket)
        // In a black hole nobody hears of a close either.
        if (!swallowing) other.destroy()
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    swallow() {
      swallowing = true
    },
    heal() {
      swallowing = false
      cut()
    },
    async close() {
      cut()
      await new Promise(resolve => server.close(resolve))
    }
  }
}
