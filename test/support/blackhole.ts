import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Test } from 'tap'

/**
 * A TCP proxy before `target` that can swallow everything: connections stay open and new ones are accepted, but
 * nothing comes through, as when a firewall starts to drop packets.
 */
export async function blackHole(t: Test, target: { host: string; port: number }) {
  const open = new Set<Socket>()
  let swallowing = false
  let swallowed = 0
  let refusing = false
  const cut = () => {
    for (const socket of open) socket.destroy()
  }

  const server = createServer(client => {
    if (refusing) {
      client.destroy()
      return
    }
    const upstream = connect(target.port, target.host)
    for (const socket of [client, upstream]) {
      open.add(socket)
      const other = socket === client ? upstream : client
      socket.setNoDelay(true)
      socket.on('error', () => socket.destroy())
      socket.on('data', data => {
        if (swallowing) swallowed++
        else other.write(data)
      })
      socket.on('close', () => {
        open.delete(socket)
        // While packets are swallowed, the other side does not see a close either.
        if (!swallowing) other.destroy()
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    cut()
    server.close()
    await once(server, 'close')
  })

  return {
    port: (server.address() as AddressInfo).port,
    swallow() {
      swallowing = true
    },
    /** How many packets it has swallowed. */
    swallowed: () => swallowed,
    /** As when the server is stopped: open connections are cut, and new ones are refused. */
    refuse() {
      refusing = true
      cut()
    },
    /** Swallowed bytes are lost, so open connections are cut, as a peer would reset them. */
    heal() {
      swallowing = false
      refusing = false
      cut()
    },
    /** As `heal`, but the old connections stay open and silent for ever: only our own timeouts can end them. */
    healForNewOnly() {
      for (const socket of open) socket.removeAllListeners('data').resume()
      swallowing = false
    }
  }
}
