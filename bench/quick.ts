// npm run bench -- quick: a tiny run of every benchmark, so that none of them is found broken on the day it is needed.
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
/** What can do without Redis does, where there is no redis-server on the path. */
const withoutRedis: Record<string, string[]> = {
  backlog: ['--mode', 'postgres'],
  old: ['--mode', 'postgres'],
  held: ['--mode', 'postgres'],
  retention: ['--mode', 'postgres'],
  recovery: ['--mode', 'postgres']
}

/** Ends with exit code 1 after all have run, when one of them failed; their own output is shown for that one only. */
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
    const said: Buffer[] = []
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => said.push(bytes))
    const [code] = (await once(child, 'close')) as [number | null]
    console.error(`${shown}: ${code === 0 ? 'works' : `FAILED (${code})`}, ${seconds(began)} s`)
    if (code === 0) continue
    process.exitCode = 1
    console.error(Buffer.concat(said).toString())
  }
}

const seconds = (began: number): string => ((performance.now() - began) / 1000).toFixed(0)
