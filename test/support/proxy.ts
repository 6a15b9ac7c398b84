import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'

/** A way to a server on which some of its answers are changed, to play a server that is not at hand. Its port. */
export async function lyingProxy(t: Test, target: URL, lie: (answer: string) => string): Promise<number> {
  const sockets = new Set<Socket>()
  const server = createServer(near => {
    const far = connect(Number(target.port), target.hostname)
    for (const socket of [near, far]) {
      sockets.add(socket)
      socket.on('error', () => {})
      socket.on('close', () => {
        sockets.delete(socket)
        near.destroy()
        far.destroy()
      })
    }
    near.pipe(far)
    // latin1 keeps every byte as it is.
    far.on('data', chunk => near.write(Buffer.from(lie(chunk.toString('latin1')), 'latin1')))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    for (const socket of sockets) socket.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  return (server.address() as AddressInfo).port
}
