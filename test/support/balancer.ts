import { once } from 'node:events'
import { Agent, createServer, request, type IncomingMessage, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { fetch } from 'undici'

export interface Balancer {
  url: string
}

const pollMs = 100

/** A minimal load balancer: round robin over the backends whose /readyz is OK. It never sends a request twice. */
export async function balancer(t: Test, backends: readonly string[]): Promise<Balancer> {
  const agent = new Agent({ keepAlive: true })
  let ready = [...backends]
  let turn = 0
  const polling = setInterval(() => {
    for (const backend of backends) {
      void fetch(`${backend}/readyz`, { signal: AbortSignal.timeout(1_000) })
        .then(async answer => {
          await answer.arrayBuffer()
          return answer.ok
        })
        // A backend that is only slow stays; a backend that refuses is removed.
        .catch((err: unknown) => (err instanceof Error && err.name === 'TimeoutError' ? undefined : false))
        .then(ok => {
          if (ok !== undefined && ok !== ready.includes(backend))
            ready = ok ? [...ready, backend] : ready.filter(other => other !== backend)
        })
    }
  }, pollMs)
  const server: Server = createServer((near, answer) => {
    const backend = ready[turn++ % ready.length]
    if (backend === undefined) {
      answer.writeHead(502).end()
      return
    }
    const far = request(`${backend}${near.url ?? ''}`, { agent, method: near.method, headers: near.headers })
    far.on('response', (reply: IncomingMessage) => {
      answer.writeHead(reply.statusCode ?? 502, reply.headers)
      reply.pipe(answer)
    })
    far.on('error', () => answer.destroy())
    near.pipe(far)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    clearInterval(polling)
    server.closeAllConnections()
    agent.destroy()
    await new Promise(resolve => server.close(resolve))
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }
}
