// Servers with a successor: a PostgreSQL with a synchronous standby, and a Redis with a replica and three Sentinels.
import { execFileSync, spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { chownSync, mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { isPostmaster } from '../src/embedded/pidfile.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../src/embedded/postmaster.ts'
import { freePort } from '../src/embedded/port.ts'
import { pause } from './client.ts'
import type { PostgresServer, RedisServer } from './servers.ts'

const noSuchFault = (): never => {
  throw new Error('not with --fault')
}

/** A primary whose commits wait for its standby, so both have each task that was answered 2xx. */
export async function servePair(folder: string): Promise<PostgresServer> {
  const [primaryDir, standbyDir] = [join(folder, 'postgres'), join(folder, 'standby')]
  mkdirSync(primaryDir, { mode: 0o711 })
  const empty = await runPostmaster({ dataDir: primaryDir })
  await stopPostmaster({ pid: empty.pid, dataDir: primaryDir })
  execFileSync('cp', ['-a', primaryDir, standbyDir])
  // The standby takes its own port.
  rmSync(join(standbyDir, 'port'), { force: true })
  const signal = join(standbyDir, 'postgres/standby.signal')
  writeFileSync(signal, '')
  const { uid, gid } = statSync(join(standbyDir, 'postgres/PG_VERSION'))
  chownSync(signal, uid, gid)
  const primary = await runPostmaster({
    dataDir: primaryDir,
    settings: { synchronous_standby_names: 'standby' }
  })
  const { password } = primary
  const standby = await runPostmaster({
    dataDir: standbyDir,
    settings: {
      primary_conninfo: `host=127.0.0.1 port=${primary.port} user=postgres password=${password} application_name=standby`
    }
  })
  // The standby first, so that the first host of the list is not the primary.
  const url = `postgres://postgres:${password}@127.0.0.1:${standby.port},127.0.0.1:${primary.port}/postgres`
  const options = { max: 2, onnotice: () => {}, connection: { application_name: 'chaos' } }
  // With `read-write`, postgres.js would also take the standby.
  const sql = postgres(url, { ...options, target_session_attrs: 'primary' })
  for (;;) {
    const [row] = await sql`select from pg_stat_replication where sync_state = 'sync'`.catch(() => [])
    if (row) break
    await pause(100)
  }
  let isOver = false
  return {
    url: `${url}?target_session_attrs=read-write`,
    password,
    sql,
    pids: () => (isOver ? [standby.pid] : [primary.pid, standby.pid]),
    async failover() {
      isOver = true
      process.kill(primary.pid, 'SIGKILL')
      while (isPostmaster(primary.pid, join(primaryDir, 'postgres'))) await pause(10)
      const successor = postgres(urlOf(standby), { ...options, max: 1 })
      await successor`select pg_promote(true, 300)`
      await successor.end({ timeout: 1 })
    },
    terminateBackends: noSuchFault,
    stopAtOnce: noSuchFault,
    start: noSuchFault,
    swallow: noSuchFault,
    heal: noSuchFault,
    async close() {
      await sql.end({ timeout: 1 }).catch(() => {})
      await stopPostmaster({ pid: standby.pid, dataDir: standbyDir })
      await stopPostmaster({ pid: primary.pid, dataDir: primaryDir })
    }
  }
}

const master = 'chaos'

/** Two of three Sentinels must agree that the master is gone, within about two seconds. */
export async function serveSentinels(folder: string): Promise<RedisServer> {
  const children: ChildProcess[] = []
  const serve = async (...more: string[]): Promise<{ port: number; child: ChildProcess }> => {
    const port = await freePort()
    const child = spawn('redis-server', [...more, '--port', `${port}`, '--bind', '127.0.0.1'], {
      stdio: 'ignore',
      detached: true
    })
    children.push(child)
    while ((await ask(port, redis => redis.ping()).catch(() => '')) !== 'PONG') await pause(50)
    return { port, child }
  }
  const dirOf = (name: string): string => {
    const dir = join(folder, name)
    mkdirSync(dir)
    return dir
  }
  const inMemory = ['--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction', '--dir']
  const first = await serve(...inMemory, dirOf('redis'))
  // A replica first writes the data of its master to its folder.
  const replica = await serve(...inMemory, dirOf('replica'), '--replicaof', '127.0.0.1', `${first.port}`)
  const info = (port: number) => ask(port, redis => redis.info('replication')).catch(() => '')
  while (!(await info(replica.port)).includes('master_link_status:up')) await pause(50)
  const sentinels = await Promise.all(
    [1, 2, 3].map(async nth => {
      // A Sentinel writes its state to its file.
      const dir = dirOf(`sentinel-${nth}`)
      const file = join(dir, 'sentinel.conf')
      const lines = [
        `dir ${dir}`,
        `sentinel monitor ${master} 127.0.0.1 ${first.port} 2`,
        `sentinel down-after-milliseconds ${master} 1000`,
        `sentinel failover-timeout ${master} 5000`
      ]
      writeFileSync(file, `${lines.join('\n')}\n`)
      return await serve(file, '--sentinel')
    })
  )
  const [firstSentinel] = sentinels
  const masterField = async (field: string): Promise<string | undefined> => {
    const [row = []] = await ask(
      firstSentinel?.port ?? 0,
      redis => redis.call('sentinel', 'masters') as Promise<string[][]>
    )
    return row[row.indexOf(field) + 1]
  }
  while ((await masterField('num-other-sentinels')) !== '2' || (await masterField('num-slaves')) !== '1')
    await pause(100)
  return {
    url: `redis+sentinel://${sentinels.map(({ port }) => `127.0.0.1:${port}`).join(',')}/${master}`,
    pids: () => children.filter(isAlive).map(({ pid = 0 }) => pid),
    async failover() {
      const gone = once(first.child, 'exit')
      first.child.kill('SIGKILL')
      await gone
      while ((await masterField('port')) !== `${replica.port}`) await pause(50)
    },
    kill: noSuchFault,
    start: noSuchFault,
    flush: noSuchFault,
    save: noSuchFault,
    restore: noSuchFault,
    swallow: noSuchFault,
    heal: noSuchFault,
    async close() {
      await Promise.all(
        children.filter(isAlive).map(async child => {
          const gone = once(child, 'exit')
          child.kill('SIGKILL')
          await gone
        })
      )
    }
  }
}

const isAlive = ({ exitCode, signalCode }: ChildProcess): boolean => exitCode === null && signalCode === null

async function ask<T>(port: number, question: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(port, '127.0.0.1', { maxRetriesPerRequest: 0, retryStrategy: () => null })
  redis.on('error', () => {}) // refused until it listens
  try {
    return await question(redis)
  } finally {
    redis.disconnect()
  }
}
