// The run's own PostgreSQL and Redis, each behind a proxy, and their faults.
import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { copyFileSync, mkdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { isPostmaster } from '../src/embedded/pidfile.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../src/embedded/postmaster.ts'
import { freePort } from '../src/embedded/port.ts'
import { pause } from './client.ts'
import { proxyTo } from './proxy.ts'

export interface PostgresServer {
  /** Through the proxy: for the service. */
  url: string
  password: string
  /** Without the proxy: for the run itself. */
  sql: postgres.Sql
  terminateBackends(): Promise<void>
  /** As `pg_ctl stop -m immediate`: no clean shutdown, so it must recover from its log. */
  stopAtOnce(): Promise<void>
  start(): Promise<void>
  swallow(): Promise<void>
  heal(): Promise<void>
  /** Kills it, and its successor takes its place. Works once. */
  failover?(): Promise<void>
  pids(): number[]
  close(): Promise<void>
}

/** With its default settings: a commit is on the disk. */
export async function servePostgres(folder: string): Promise<PostgresServer> {
  const dataDir = join(folder, 'postgres')
  mkdirSync(dataDir, { mode: 0o711 })
  let postmaster = await runPostmaster({ dataDir })
  const proxy = await proxyTo(postmaster.port)
  const sql = postgres(urlOf(postmaster), {
    max: 2,
    onnotice: () => {},
    connection: { application_name: 'chaos' }
  })
  return {
    url: urlOf({ ...postmaster, port: proxy.port }),
    password: postmaster.password,
    sql,
    pids: () => [postmaster.pid],
    async terminateBackends() {
      await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where backend_type = 'client backend' and application_name <> 'chaos'`
    },
    async stopAtOnce() {
      process.kill(postmaster.pid, 'SIGQUIT')
      while (isPostmaster(postmaster.pid, join(dataDir, 'postgres'))) await pause(10)
    },
    async start() {
      postmaster = await runPostmaster({ dataDir, port: postmaster.port })
    },
    swallow: proxy.swallow,
    heal: proxy.heal,
    async close() {
      await sql.end({ timeout: 1 }).catch(() => {})
      await proxy.close()
      await stopPostmaster({ pid: postmaster.pid, dataDir })
    }
  }
}

export interface RedisServer {
  url: string
  kill(): Promise<void>
  /** It starts empty, unless a dump was restored. */
  start(): Promise<void>
  flush(): Promise<void>
  /** Saves a dump of its data. After `restore` the next start loads it. */
  save(): Promise<void>
  restore(): void
  swallow(): Promise<void>
  heal(): Promise<void>
  failover?(): Promise<void>
  pids(): number[]
  close(): Promise<void>
}

export async function serveRedis(folder: string): Promise<RedisServer> {
  const port = await freePort()
  const dir = join(folder, 'redis')
  mkdirSync(dir)
  const dump = join(dir, 'dump.rdb')
  let child: ChildProcess | undefined
  const client = new Redis({ port, host: '127.0.0.1', retryStrategy: () => 100, lazyConnect: true })
  client.on('error', () => {}) // refused until it listens

  async function start(): Promise<void> {
    // Redis saves its data only on request, so a restart begins empty.
    const settings = ['--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction']
    child = spawn('redis-server', ['--port', `${port}`, '--bind', '127.0.0.1', '--dir', dir, ...settings], {
      stdio: 'ignore',
      detached: true
    })
    if (client.status === 'wait') await client.connect().catch(() => {})
    while ((await client.ping().catch(() => '')) !== 'PONG') await pause(50)
    rmSync(dump, { force: true })
  }
  async function kill(): Promise<void> {
    if (!child || child.exitCode !== null || child.signalCode !== null) return
    const gone = once(child, 'exit')
    child.kill('SIGKILL')
    await gone
  }

  await start()
  const proxy = await proxyTo(port)
  return {
    url: `redis://127.0.0.1:${proxy.port}`,
    kill,
    start,
    async flush() {
      await client.flushall()
    },
    async save() {
      await client.save()
      copyFileSync(dump, `${dump}.old`)
      rmSync(dump)
    },
    restore() {
      copyFileSync(`${dump}.old`, dump)
    },
    swallow: proxy.swallow,
    heal: proxy.heal,
    pids: () => [child?.pid ?? 0],
    async close() {
      client.disconnect()
      await proxy.close()
      await kill()
    }
  }
}
