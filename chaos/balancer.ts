// A minimal load balancer: it uses the ready backends (/readyz) in turn, and never sends a request twice.
import { EventEmitter, once } from 'node:events'
import { Agent, createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fetch } from 'undici'
import { pause } from './client.ts'

export interface Balancer {
  url: string
  /** Resolves when this backend receives requests. Resolves at once for an unknown backend. */
  sees(backend: string): Promise<void>
  close(): Promise<void>
}

const pollMs = 100
const silentMs = 1_000

export async function balance(backends: readonly string[]): Promise<Balancer> {
  const agent = new Agent({ keepAlive: true })
  const stop = new AbortController()
  const ready = new Set<string>()
  const changed = new EventEmitter().setMaxListeners(0)
  let turn = 0
  const watch = async (backend: string): Promise<void> => {
    while (!stop.signal.aborted) {
      const isReady = await fetch(`${backend}/readyz`, { signal: AbortSignal.timeout(silentMs) }).then(
        async answer => {
          await answer.arrayBuffer()
          return answer.ok
        },
        () => false
      )
      if (isReady) {
        ready.add(backend)
        changed.emit('ready')
      } else ready.delete(backend)
      await pause(pollMs)
    }
  }
  const watching = backends.map(watch)
  const server = createServer((near, answer) => {
    const all = backends.filter(one => ready.has(one))
    const backend = all[turn++ % all.length]
    if (backend === undefined) {
      answer.writeHead(502).end()
      return
    }
    const far = request(`${backend}${near.url ?? ''}`, { agent, method: near.method, headers: near.headers })
    far.on('response', reply => {
      answer.writeHead(reply.statusCode ?? 502, reply.headers)
      reply.on('error', () => answer.destroy())
      reply.pipe(answer)
    })
    far.on('error', () => answer.destroy())
    answer.on('close', () => far.destroy())
    near.pipe(far)
  })
  server.listen({ port: 0, host: '127.0.0.1', backlog: 65_535 })
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async sees(backend) {
      while (backends.includes(backend) && !ready.has(backend)) await once(changed, 'ready')
    },
    async close() {
      stop.abort()
      server.closeAllConnections()
      agent.destroy()
      await new Promise(resolve => server.close(resolve))
      await Promise.all(watching)
    }
  }
}
