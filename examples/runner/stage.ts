// The environment of an example: a temporary folder, a PostgreSQL for its own databases, Ackbox, and its programs.
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { fetch, type Response } from 'undici'
import { signingSecret } from '../../src/domain/tokens.ts'
import { findRunning } from '../../src/embedded/pidfile.ts'
import { freePort } from '../../src/embedded/port.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../../src/embedded/postmaster.ts'
import { kills, type Kills } from './kills.ts'
import { start, type Program } from './programs.ts'

export interface Stage {
  /** The amount of work. */
  count: number
  /** Prints a step of the story. */
  step(text: string): void
  /** A free port. */
  port(): Promise<number>
  /** Makes a database with these tables, in a PostgreSQL that is not Ackbox's. Returns its URL. */
  database(name: string, tables: string): Promise<string>
  /** Rows of one of these databases. */
  rows<Row>(database: string, query: string): Promise<Row[]>
  /** Starts Ackbox with the handlers of the example and its own embedded PostgreSQL. Returns its URL. `env`: variables for the handlers. */
  ackbox(env: Record<string, string>): Promise<string>
  /** The signing secret of a downstream, as `npx ackbox key secret NAME` prints it. */
  secret(downstream: string): string
  /** Starts a program of the example's folder. Resolves when it prints a line with the word `ready`. */
  program(name: string, file: string, env: Record<string, string>): Promise<void>
  /** Starts a command of Ackbox, such as relay, or another program by its path. */
  command(name: string, command: string[], env: Record<string, string>, ready: RegExp): Promise<void>
  /**
   * Sends a request until it is answered with 2xx: the server may be killed at any moment. Returns the JSON. Throws the text
   * of a 4xx. Without a body it is a GET.
   */
  call<Answer>(url: string, body?: unknown): Promise<Answer>
  /** Polls until `look` is true. */
  until(what: string, look: () => Promise<boolean>): Promise<void>
  /**
   * Runs `work(from, to)` for 1 to `count`; it resolves when that part is done. With --kill there are as many parts as kills, and one
   * program is killed in each.
   */
  work(count: number, work: (from: number, to: number) => Promise<void>): Promise<void>
}

export interface StageOptions {
  /** The example's folder of sources, with its handlers. `compiled`: the folder of its compiled programs. */
  source: string
  compiled: string
  count: number
  kills: number
  seed: number
  verbose: boolean
}

const ackboxProgram = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')
/** Long, as it only ends a hang: on a busy machine a start takes many times as long as alone. */
const mostMs = 600_000

/** `failed` rejects when a program fails; `close` ends everything and removes the folder. */
export function openStage(options: StageOptions): {
  stage: Stage
  failed: Promise<never>
  close(): Promise<void>
} {
  const folder = mkdtempSync(path.join(tmpdir(), 'ackbox-example-'))
  // If root runs this, PostgreSQL runs as another user, which needs access.
  chmodSync(folder, 0o755)
  const [ackboxData, databasesData] = [path.join(folder, 'ackbox'), path.join(folder, 'databases')]
  const secret = randomBytes(32).toString('base64')
  const began = performance.now()
  const programs: Program[] = []
  const clients = new Map<string, postgres.Sql>()
  const plan: Kills = kills(options.kills, options.seed)
  let fail: (error: Error) => void = () => {}
  const failed = new Promise<never>((_, reject) => {
    fail = reject
  })
  failed.catch(() => {})
  let server: ReturnType<typeof runPostmaster> | undefined
  let isClosed = false

  const step = (text: string): void =>
    console.log(`${((performance.now() - began) / 1000).toFixed(1).padStart(6)} s  ${text}`)

  async function command(
    name: string,
    args: string[],
    env: Record<string, string>,
    ready: RegExp
  ): Promise<void> {
    // The stage was closed while the story was still starting programs.
    if (isClosed) throw new Error('it is over')
    const { PATH = '', HOME = '' } = process.env
    const program = start({
      name,
      command: args,
      env: { PATH, HOME, ...env },
      cwd: folder,
      ready,
      onLine: line => void (options.verbose && console.log(`          ${name}: ${line}`)),
      onChange: step,
      onFailed: fail
    })
    programs.push(program)
    await program.ready()
  }

  const stage: Stage = {
    count: options.count,
    step,
    port: () => freePort(),
    async database(name, tables) {
      const run = await (server ??= runPostmaster({ dataDir: databasesData, settings: { fsync: 'off' } }))
      const main = postgres(urlOf(run), { max: 1 })
      try {
        await main.unsafe(`create database ${name}`)
      } finally {
        await main.end()
      }
      const url = urlOf(run, name)
      const sql = postgres(url, { max: 2, onnotice: () => {} })
      clients.set(name, sql)
      await sql.unsafe(tables)
      return url
    },
    async rows<Row>(database: string, query: string) {
      const sql = clients.get(database)
      if (!sql) throw new Error(`there is no database ${database}`)
      return [...(await sql.unsafe<(Row & postgres.Row)[]>(query))]
    },
    async ackbox(env) {
      const port = String(await freePort())
      await command(
        'ackbox',
        [process.execPath, ackboxProgram, 'start'],
        {
          PORT: port,
          DATA_DIR: ackboxData,
          SECRET: secret,
          HANDLERS_DIR: path.join(options.source, 'handlers'),
          DEMO: 'off',
          // Short, so that a delivery that was in flight at a kill is sent again soon.
          LEASE_MARGIN_MS: '1500',
          ...env
        },
        /"msg":"ready"/
      )
      return `http://127.0.0.1:${port}`
    },
    secret: downstream => signingSecret(secret, downstream),
    program: (name, file, env) =>
      command(name, [process.execPath, path.join(options.compiled, file)], env, /\bready\b/),
    command: (name, [first = '', ...rest], env, ready) =>
      command(
        name,
        first === 'ackbox' ? [process.execPath, ackboxProgram, ...rest] : [first, ...rest],
        env,
        ready
      ),
    async call<Answer>(url: string, body?: unknown) {
      for (;;) {
        const answer = await ask(url, body)
        if (answer?.ok) return (await answer.json()) as Answer
        if (answer && answer.status < 500 && answer.status !== 429)
          throw new Error(`${url} answered ${answer.status}: ${await answer.text()}`)
        await sleep(100)
      }
    },
    async until(what, look) {
      for (const end = performance.now() + mostMs; !(await look()); await sleep(50))
        if (performance.now() > end) throw new Error(`waited ${mostMs / 1000} s in vain until ${what}`)
    },
    work: (count, work) => plan.during(count, work, programs)
  }

  return {
    stage,
    failed,
    async close() {
      isClosed = true
      for (const program of programs.toReversed()) await program.stop()
      await Promise.all([...clients.values()].map(sql => sql.end({ timeout: 1 })))
      const run = await server?.catch(() => undefined)
      if (run) await stopPostmaster({ pid: run.pid, dataDir: databasesData })
      // If Ackbox was killed last, its PostgreSQL still runs.
      const left = findRunning(path.join(ackboxData, 'postgres'))
      if (left) await stopPostmaster({ pid: left.pid, dataDir: ackboxData })
      rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 })
    }
  }
}

/** Undefined without an answer in time. */
async function ask(url: string, body: unknown): Promise<Response | undefined> {
  try {
    return await fetch(url, {
      signal: AbortSignal.timeout(30_000),
      ...(body === undefined
        ? {}
        : {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify(body)
          })
    })
  } catch {
    return undefined
  }
}
