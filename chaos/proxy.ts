// A proxy that can turn into a black hole: connections stay open, new ones are accepted, and no data passes. It has its own thread:
// on a busy machine the retries of producers would otherwise keep the service from its database.
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads'

export interface Proxy {
  port: number
  swallow(): Promise<void>
  /** Swallowed data is lost. Open connections are cut, as a peer would do after its resets. */
  heal(): Promise<void>
  close(): Promise<void>
}

type Order = 'swallow' | 'heal' | 'close'

export async function proxyTo(port: number): Promise<Proxy> {
  const worker = new Worker(new URL(import.meta.url), { workerData: port })
  const [proxyPort] = (await once(worker, 'message')) as [number]
  const tell = async (order: Order): Promise<void> => {
    const done = once(worker, 'message')
    worker.postMessage(order)
    await done
  }
  return {
    port: proxyPort,
    swallow: () => tell('swallow'),
    heal: () => tell('heal'),
    async close() {
      await tell('close')
      await worker.terminate()
    }
  }
}

async function serve(port: number, tell: (word: unknown) => void): Promise<(order: Order) => Promise<void>> {
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
        // A black hole does not pass a close on either.
        if (!swallowing) other.destroy()
      })
    }
  })
  server.listen({ port: 0, host: '127.0.0.1', backlog: 65_535 })
  await once(server, 'listening')
  tell((server.address() as AddressInfo).port)
  return async order => {
    swallowing = order === 'swallow'
    if (!swallowing) cut()
    if (order === 'close') await new Promise(resolve => server.close(resolve))
    tell(order)
  }
}

if (!isMainThread && parentPort) {
  const port = parentPort
  const obey = await serve(workerData as number, word => port.postMessage(word))
  port.on('message', (order: Order) => void obey(order))
}
