// npm run bench -- quick: a tiny run of every benchmark, to find a broken one before it is needed.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { hasRedis } from './ground.ts'

const all = [
  '',
  'shapes',
  'curves',
  'backlog',
  'old',
  'held',
  'retention',
  'recovery',
  'isolation',
  'keys',
  'pages',
  'dashboards',
  'outbox',
  'soak',
  'transports',
  'upgrade'
]
/** The arguments of benchmarks that also work without Redis, used if there is no redis-server on the path. */
const withoutRedis: Record<string, string[]> = {
  backlog: ['--mode', 'postgres'],
  old: ['--mode', 'postgres'],
  held: ['--mode', 'postgres'],
  retention: ['--mode', 'postgres'],
  recovery: ['--mode', 'postgres']
}

/** Runs all of them. If any fails, its output is shown and the exit code is 1. */
export async function main(): Promise<void> {
  const redis = hasRedis()
  for (const name of all) {
    const shown = name || 'pipeline'
    if (name === 'transports' && !redis) {
      console.error(`${shown}: skipped, since there is no redis-server on the path`)
      continue
    }
    const began = performance.now()
    const args = [name, '--quick', ...(redis ? [] : (withoutRedis[name] ?? []))].filter(arg => arg !== '')
    const child = spawn(process.execPath, [fileURLToPath(new URL('./main.js', import.meta.url)), ...args], {
      stdio: ['ignore', 'pipe', 'pipe']
    })
    const output: Buffer[] = []
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (bytes: Buffer) => output.push(bytes))
    const [code] = (await once(child, 'close')) as [number | null]
    console.error(`${shown}: ${code === 0 ? 'works' : `FAILED (${code})`}, ${seconds(began)} s`)
    if (code === 0) continue
    process.exitCode = 1
    console.error(Buffer.concat(output).toString())
  }
}

const seconds = (began: number): string => ((performance.now() - began) / 1000).toFixed(0)
