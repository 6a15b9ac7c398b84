import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { dataRoot } from './memory.ts'

export interface TestRedis {
  url: string
  host: string
  port: number
}

export interface OwnRedis extends TestRedis {
  /** kill -9, or another signal; resolves when the process is gone. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** Starts it again on its port; its data is lost. */
  start(): Promise<void>
}

const noRedis = 'no Redis: set REDIS_URL or put redis-server (6.2 or newer) on the PATH'
const readyLine = 'Ready to accept connections'

/** REDIS_URL if set, else a new server. It may be shared, so use a prefix of your own. Undefined: the test is skipped. */
export async function testRedis(t: Test): Promise<TestRedis | undefined> {
  const url = process.env['REDIS_URL']
  if (!url) return ownRedis(t)
  const { hostname, port } = new URL(url)
  return { url, host: hostname, port: Number(port || 6379) }
}

/** Always a new server, for tests that kill it or change its settings. */
export async function ownRedis(t: Test, ...args: string[]): Promise<OwnRedis | undefined> {
  if (spawnSync('redis-server', ['--version']).status !== 0) {
    // On a build machine a silent skip would hide that these tests do not run.
    if (process.env['CI'] === 'true') t.fail(noRedis)
    else t.comment(`SKIP ${noRedis}`)
    return undefined
  }
  const port = await freePort()
  const dir = await mkdtemp(join(dataRoot, 'ackbox-redis-'))
  let child: ChildProcess | undefined

  const start = async () => {
    child = spawn(
      'redis-server',
      [
        '--bind',
        '127.0.0.1',
        '--port',
        String(port),
        '--dir',
        dir,
        '--save',
        '',
        '--appendonly',
        'no',
        '--daemonize',
        'no',
        ...args
      ],
      // No stdio is inherited from the runner: a reader of its output would wait for a Redis that was left behind.
      { stdio: ['ignore', 'pipe', 'ignore'] }
    )
    const starting = child
    let output = ''
    await new Promise<void>((resolve, reject) => {
      // Its output is read until it ends: a full pipe would block it.
      starting.stdout?.setEncoding('utf8').on('data', (text: string) => {
        if (output.includes(readyLine)) return
        output += text
        if (output.includes(readyLine)) resolve()
      })
      starting.once('error', reject)
      starting.once('exit', () => reject(new Error(`redis-server ended at its start:\n${output}`)))
    })
  }
  const kill = async (signal: NodeJS.Signals = 'SIGKILL') => {
    const dying = child
    if (!dying || dying.exitCode !== null || dying.signalCode !== null) return
    const gone = once(dying, 'exit')
    dying.kill(signal)
    await gone
  }

  await start()
  t.teardown(async () => {
    await kill()
    await rm(dir, { recursive: true, force: true })
  })
  return { url: `redis://127.0.0.1:${port}`, host: '127.0.0.1', port, kill, start }
}
