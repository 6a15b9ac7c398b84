// npm run bench -- quick: a tiny run of every benchmark, to find a broken one before it is needed.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { hasRedis } from './ground.ts'
import { refusedExitCode } from './report.ts'

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

/** A machine that stands still for a second makes a sound service refuse tasks. A service that always refuses is found. */
const mostTries = 5

/** Runs all of them. If any fails, its output is shown and the exit code is 1. One that only had tasks refused runs again. */
export async function main(): Promise<void> {
  const redis = hasRedis()
  for (const name of all) {
    const shown = name || 'pipeline'
    if (name === 'transports' && !redis) {
      console.error(`${shown}: skipped, since there is no redis-server on the path`)
      continue
    }
    const args = [name, '--quick', ...(redis ? [] : (withoutRedis[name] ?? []))].filter(arg => arg !== '')
    for (let tries = 1; ; tries++) {
      const began = performance.now()
      const { code, output } = await run(args)
      const isRefused = code === refusedExitCode
      const end = code === 0 ? 'works' : isRefused ? 'tasks were refused' : `FAILED (${code})`
      console.error(`${shown}: ${end}, ${seconds(began)} s`)
      if (code === 0) break
      console.error(output)
      if (isRefused && tries < mostTries) continue
      process.exitCode = 1
      break
    }
  }
}

async function run(args: string[]): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, [fileURLToPath(new URL('./main.js', import.meta.url)), ...args], {
    stdio: ['ignore', 'pipe', 'pipe']
  })
  const output: Buffer[] = []
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => output.push(bytes))
  const [code] = (await once(child, 'close')) as [number | null]
  return { code, output: Buffer.concat(output).toString() }
}

const seconds = (began: number): string => ((performance.now() - began) / 1000).toFixed(0)
