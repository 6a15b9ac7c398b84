// A minimal load balancer, a process of its own: it uses the ready backends (/readyz) in turn, and never sends a request twice.
import { EventEmitter, once } from 'node:events'
import { Agent, createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { fileURLToPath } from 'node:url'
import { fetch } from 'undici'
import { pause } from './client.ts'
import { forkUrgent, kill } from './urgent.ts'

export interface Balancer {
  url: string
  /** Resolves when this backend receives requests. Resolves at once for an unknown backend. */
  sees(backend: string): Promise<void>
  close(): Promise<void>
}

const pollMs = 100
const silentMs = 1_000
const file = fileURLToPath(import.meta.url)

export async function balance(backends: readonly string[]): Promise<Balancer> {
  const child = forkUrgent(file, ['balance', ...backends], {})
  const [url] = (await once(child, 'message')) as [string]
  const seen = new EventEmitter().setMaxListeners(0)
  child.on('message', (backend: string) => seen.emit(backend))
  return {
    url,
    async sees(backend) {
      if (!backends.includes(backend)) return
      const isSeen = once(seen, backend)
      child.send(backend)
      await isSeen
    },
    close: () => kill(child)
  }
}

/** Runs until the process ends. Reports its URL, then each backend that the other side asks for as soon as it is ready. */
async function serve(backends: readonly string[]): Promise<void> {
  const agent = new Agent({ keepAlive: true })
  const ready = new Set<string>()
  const changed = new EventEmitter().setMaxListeners(0)
  let turn = 0
  const watch = async (backend: string): Promise<void> => {
    for (;;) {
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
  for (const backend of backends) void watch(backend)
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
  process.send?.(`http://127.0.0.1:${(server.address() as AddressInfo).port}`)
  const report = async (backend: string): Promise<void> => {
    while (!ready.has(backend)) await once(changed, 'ready')
    process.send?.(backend)
  }
  process.on('message', (backend: string) => void report(backend))
}

if (process.argv[1] === file && process.argv[2] === 'balance') {
  // Ctrl-C in a terminal reaches the whole group. The run ends this process.
  process.on('SIGINT', () => {})
  process.on('disconnect', () => process.exit(0))
  await serve(process.argv.slice(3))
}
