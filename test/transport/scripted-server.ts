import { once } from 'node:events'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'

export interface ScriptedServer {
  port: number
  /** Connections taken so far. */
  taken: number
  /** Connections that are open now. */
  open: Set<Socket>
  /** Resolves when no connection is open. */
  empty(): Promise<void>
}

/** A TCP server that runs the script on each connection. */
export async function scriptedServer(
  t: Test,
  script: (socket: Socket) => void = () => {}
): Promise<ScriptedServer> {
  const server = createServer({ allowHalfOpen: true }, socket => {
    scripted.taken++
    scripted.open.add(socket)
    socket
      .on('error', () => {})
      .on('end', () => socket.end())
      .on('close', () => scripted.open.delete(socket))
    script(socket)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const scripted: ScriptedServer = {
    port: (server.address() as AddressInfo).port,
    taken: 0,
    open: new Set(),
    async empty() {
      for (const socket of scripted.open) {
        // Unread data would hide that the other side is gone.
        socket.resume()
        if (!socket.closed) await new Promise(resolve => socket.once('close', resolve))
      }
    }
  }
  t.teardown(() => {
    for (const socket of scripted.open) socket.destroy()
    server.close()
  })
  return scripted
}
