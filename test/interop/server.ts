// Real servers, each in its own process for the test: started, killed, frozen and started again.
import { execFile, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import type { Test } from 'tap'
import { removeFolder } from '../../chaos/remove-folder.ts'
import { freePort } from '../../src/embedded/port.ts'
import { without } from '../support/program.ts'

export interface Server {
  /** kill -9; resolves when it is gone. */
  kill(): Promise<void>
  /** SIGTERM only: the server may take its time. */
  ask(): void
  /** Starts it again on the same data and ports. Resolves when it is ready. */
  start(): Promise<void>
  /** As a machine that hangs: its sockets stay open and nothing answers. */
  freeze(): void
  thaw(): void
}

export interface ServerOptions {
  /** A folder beside this file with a start.sh whose process becomes the server. */
  name: 'dubbo' | 'kafka' | 'nats' | 'rabbitmq' | 'redis' | 'rocketmq'
  args?: string[]
  env?: Record<string, string>
  /** The server is ready when its output matches. */
  ready: RegExp
  /** The time limit of a start, in seconds. The first start may download the server. */
  within?: number
  /** The folder of its data; a new temporary folder by default. */
  dataDir?: string
}

/** Downloads are kept here: the cache of `npm run test:interop`. */
export const cache = resolve(process.env['INTEROP_CACHE'] ?? '.interop')

/** Starts a server that ends with the test. */
export async function server(t: Test, options: ServerOptions): Promise<Server> {
  const { close, ...running } = await startServer(options)
  t.teardown(close)
  return running
}

/** `close` kills it and removes its data. */
export async function startServer(options: ServerOptions): Promise<Server & { close: () => Promise<void> }> {
  const { name, args = [], env = {}, ready, within = 600 } = options
  const dataDir = options.dataDir ?? mkdtempSync(join(tmpdir(), `ackbox-${name}-`))
  let child: ChildProcess | undefined
  const output: string[] = []

  async function start(): Promise<void> {
    const mine = spawn('sh', [`test/interop/${name}/start.sh`, ...args], {
      env: { ...process.env, INTEROP_CACHE: cache, DATA_DIR: dataDir, ...env },
      stdio: ['ignore', 'pipe', 'pipe']
    })
    child = mine
    let seen = ''
    const record = (chunk: Buffer) => {
      output.push(chunk.toString())
      if (output.length > 200) output.shift()
      seen = (seen + chunk.toString()).slice(-100_000)
    }
    mine.stdout.on('data', record)
    mine.stderr.on('data', record)
    for (const end = Date.now() + within * 1_000; !ready.test(seen); await sleep(25)) {
      if (mine.exitCode !== null || mine.signalCode !== null || Date.now() > end) {
        throw new Error(`${name} did not get ready:\n${output.join('').slice(-3_000)}`)
      }
    }
  }

  async function kill(): Promise<void> {
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }

  async function close(): Promise<void> {
    await kill()
    if (options.dataDir === undefined) await removeFolder(dataDir)
  }

  try {
    await start()
  } catch (error) {
    await close()
    throw error
  }
  return {
    kill,
    ask: () => child?.kill('SIGTERM'),
    start,
    close,
    freeze: () => stopped(child),
    thaw: () => child?.kill('SIGCONT')
  }
}

/** A server with many threads may still answer for a moment: waits until all threads are stopped. */
function stopped(child: ChildProcess | undefined): void {
  if (child?.pid === undefined) return
  child.kill('SIGSTOP')
  const threads = `/proc/${child.pid}/task`
  if (!existsSync(threads)) return
  const stands = (id: string): boolean => / [TtZX] /.test(readFileSync(`${threads}/${id}/stat`, 'utf8'))
  for (const end = Date.now() + 1_000; Date.now() < end;) if (readdirSync(threads).every(stands)) return
}

/**
 * Builds programs that several test files use, once per run (INTEROP_RUN): the build of another file must not replace the classes
 * of a running program. Two builds at the same time wait for each other, if there is flock.
 */
export async function built(name: string, command: string, ...args: string[]): Promise<void> {
  mkdirSync(cache, { recursive: true })
  const done = join(cache, `${name}.built`)
  const unlessDone = '[ "$(cat "$0" 2>/dev/null)" = "$1" ] || { run=$1; shift; "$@" && echo "$run" >"$0"; }'
  const script = [
    'sh',
    '-c',
    unlessDone,
    done,
    process.env['INTEROP_RUN'] ?? String(process.pid),
    command,
    ...args
  ]
  const [program = '', ...rest] = without('flock') ? script : ['flock', `${done}.lock`, ...script]
  await promisify(execFile)(program, rest, { maxBuffer: 16 * 1_048_576 })
}

/** Ports that were free a moment ago. */
export const freePorts = (count: number): Promise<number[]> =>
  Promise.all(Array.from({ length: count }, () => freePort()))
