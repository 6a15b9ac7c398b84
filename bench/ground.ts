// The environment of the variants: one PostgreSQL, one Redis, one sink, one producer, all in a temporary folder.
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { runPostmaster, stopPostmaster, urlOf } from '../src/embedded/postmaster.ts'
import { freePort } from '../src/embedded/port.ts'
import { start, stop, type Child } from './child.ts'

export interface Ground {
  postgresPid: number
  redisPid: number | undefined
  redisUrl: string | undefined
  sink: Child
  sinkUrl: string
  load: Child
  /** Creates an empty database, after dropping the one of this name. */
  database: (name: string) => Promise<string>
  urlOf: (name: string) => string
  emptyRedis: () => Promise<void>
  /** How often Redis has read from its clients: a round trip counts once, however many commands it has; calls in a script do not. */
  redisReads: () => Promise<number>
  /** MB that Redis has allocated (used_memory); 0 without Redis. */
  redisMb: () => Promise<number>
  /** SQL statements so far in this database; writing transactions and bytes of WAL so far in all databases. */
  statements: (name: string) => Promise<{ statements: number; commits: number; walBytes: number }>
  close: () => Promise<void>
}

/** If `signal` aborts, the producer is stopped: an open question to it fails, and everything is closed after that. */
async function prepare(quick: boolean, signal: AbortSignal): Promise<Ground> {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-bench-'))
  chmodSync(folder, 0o755) // if root runs this, PostgreSQL runs as another user
  const closers: (() => Promise<unknown>)[] = [async () => rmSync(folder, { recursive: true, force: true })]
  const close = async () => {
    for (const closer of closers.splice(0).reverse())
      await closer().catch((err: Error) => console.error(err.message))
  }
  try {
    const dataDir = join(folder, 'data')
    const postmaster = await runPostmaster({
      dataDir,
      settings: { shared_preload_libraries: 'pg_stat_statements', min_wal_size: '1GB' }
    })
    closers.push(() => stopPostmaster({ pid: postmaster.pid, dataDir }))
    const sql = postgres(urlOf(postmaster), { max: 1, onnotice: () => {} })
    closers.push(() => sql.end({ timeout: 1 }))
    await sql`create extension if not exists pg_stat_statements`
    if (!quick) await useWal(sql, signal)

    const redis = await startRedis(folder)
    if (redis) closers.push(redis.close)
    const sink = await start('./sink.js')
    closers.push(() => sink.stop())
    const load = await start('./load.js')
    closers.push(() => load.stop())
    signal.addEventListener('abort', () => void load.stop())
    signal.throwIfAborted()

    return {
      postgresPid: postmaster.pid,
      redisPid: redis?.pid,
      redisUrl: redis?.url,
      sink,
      sinkUrl: `http://127.0.0.1:${(sink.hello as { port: number }).port}`,
      load,
      async database(name) {
        await sql`drop database if exists ${sql(name)} with (force)`
        await sql`create database ${sql(name)}`
        await sql`checkpoint`
        return urlOf(postmaster, name)
      },
      urlOf: name => urlOf(postmaster, name),
      emptyRedis: async () => void (await redis?.client.flushall()),
      async redisReads() {
        const stats = (await redis?.client.info('stats')) ?? ''
        return Number(/^total_reads_processed:(\d+)/m.exec(stats)?.[1] ?? 0)
      },
      async redisMb() {
        const info = await redis?.client.info('memory')
        return Number(/^used_memory:(\d+)/m.exec(info ?? '')?.[1] ?? 0) / 1_048_576
      },
      async statements(name) {
        // Counters of pg_stat_database are up to 10 s old; transaction ids are exact.
        const [row] = await sql<{ statements: number; commits: number; walBytes: number }[]>`
          select coalesce(sum(s.calls), 0)::float8 as statements,
            pg_snapshot_xmax(pg_current_snapshot())::text::float8 as commits,
            pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as "walBytes"
          from pg_stat_statements s join pg_database d on d.oid = s.dbid
          where d.datname = ${name}`
        return row ?? { statements: 0, commits: 0, walBytes: 0 }
      },
      close
    }
  } catch (err) {
    await close()
    throw err
  }
}

/**
 * A server that has run for a while reuses its WAL segments. A new server creates each one: 16 MB of zeros and a sync, for which all
 * commits wait 60 to 90 ms. So all segments that `min_wal_size` keeps are created here, which takes 3 s.
 */
async function useWal(sql: postgres.Sql, signal: AbortSignal): Promise<void> {
  for (let segment = 0; segment < 64; segment++) {
    signal.throwIfAborted()
    await sql`select pg_logical_emit_message(false, 'bench', ''), pg_switch_wal()`
  }
  await sql`checkpoint`
}

/**
 * Prepares the ground, runs on it and always closes it. Ctrl-C ends it with the exit code of the signal. `quick`: the
 * measurements have no value.
 */
export async function onGround(
  quick: boolean | undefined,
  run: (ground: Ground, signal: AbortSignal) => Promise<void>
): Promise<void> {
  const interrupt = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupt.abort(signal))
  let ground: Ground | undefined
  try {
    ground = await prepare(quick === true, interrupt.signal)
    await run(ground, interrupt.signal)
  } catch (err) {
    if (!interrupt.signal.aborted) throw err
    console.error('interrupted')
    process.exitCode = interrupt.signal.reason === 'SIGINT' ? 130 : 143
  } finally {
    await ground?.close()
  }
}

/** The Redis of BullMQ in this mode. Undefined: BullMQ uses PostgreSQL. Mode redis throws without a redis-server. */
export function redisOf({ redisUrl }: Ground, mode: string): string | undefined {
  if (mode === 'redis' && redisUrl === undefined)
    throw new Error('there is no redis-server on the path: --mode postgres needs none')
  return mode === 'postgres' ? undefined : redisUrl
}

/** Whether there is a redis-server on the path. */
export const hasRedis = (): boolean => spawnSync('redis-server', ['--version']).status === 0

/** As usual for BullMQ: append-only file, fsync each second, no eviction. Undefined: no redis-server on the path. */
async function startRedis(folder: string) {
  if (!hasRedis()) return undefined
  const port = await freePort()
  const durable = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--maxmemory-policy', 'noeviction']
  const server = spawn(
    'redis-server',
    ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', folder, '--save', '', ...durable],
    { stdio: 'ignore' }
  )
  const url = `redis://127.0.0.1:${port}`
  const client = new Redis(url, { retryStrategy: () => 100 })
  client.on('error', () => {}) // connections are refused until it listens
  await client.ping()
  const close = async () => {
    client.disconnect()
    await stop(server)
  }
  return { pid: server.pid ?? 0, url, client, close }
}

/** Polls until `isSo` is true. */
export async function until(what: string, isSo: () => Promise<boolean>, ms = 30_000): Promise<void> {
  for (const end = Date.now() + ms; !(await isSo()); await sleep(50)) {
    if (Date.now() > end) throw new Error(`waited ${ms / 1000} s for ${what}`)
  }
}
