// The variants that are compared. Each runs alone, as real processes, on an empty database and an empty Redis.
import { spawn } from 'node:child_process'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { request } from 'undici'
import { migrate } from '../src/db/migrate.ts'
import { freePort } from '../src/embedded/port.ts'
import { start, stop } from './child.ts'
import { until, type Ground } from './ground.ts'

export interface Running {
  url: string
  /** All processes whose CPU counts, by role. */
  pids: Record<string, number>
  /** The name of its database. */
  database?: string
  stop: () => Promise<void>
}

export interface Variant {
  name: string
  what: string
  needsRedis: boolean
  start(ground: Ground): Promise<Running>
}

/** The setting of the pipelined variants: 200 requests at a time over four connections. */
const pipelined = { BENCH_PIPELINING: '50' }

export const variants: Variant[] = [
  {
    name: 'relay',
    what: 'Fastify -> undici, nothing kept: the baseline',
    needsRedis: false,
    start: ({ sinkUrl }) => startRelay({ BENCH_SINK: sinkUrl })
  },
  {
    name: 'relay-pipelined',
    what: 'the same over 4 connections, up to 50 requests on each',
    needsRedis: false,
    start: ({ sinkUrl }) => startRelay({ BENCH_SINK: sinkUrl, ...pipelined })
  },
  {
    name: 'ackbox-redis',
    what: 'Ackbox, BullMQ on Redis',
    needsRedis: true,
    start: ground => startAckbox(ground, 'bench_ackbox_redis', ground.redisUrl)
  },
  {
    name: 'ackbox-redis-pipelined',
    what: 'Ackbox, its downstream with limit.pipelining: 50',
    needsRedis: true,
    start: ground => startAckbox(ground, 'bench_ackbox_redis', ground.redisUrl, pipelined)
  },
  {
    name: 'ackbox-postgres',
    what: 'Ackbox, BullMQ on the same PostgreSQL',
    needsRedis: false,
    start: ground => startAckbox(ground, 'bench_ackbox_postgres', undefined)
  },
  {
    name: 'ackbox-postgres-pipelined',
    what: 'the same, with limit.pipelining: 50',
    needsRedis: false,
    start: ground => startAckbox(ground, 'bench_ackbox_postgres', undefined, pipelined)
  },
  {
    name: 'textbook',
    what: 'insert, add a job with the payload, send, update',
    needsRedis: true,
    async start(ground) {
      await ground.database('bench_textbook')
      return await runTextbook(ground, 'bench_textbook')
    }
  }
]

/** Runs it on the existing content of the database and of Redis. */
export async function runTextbook(ground: Ground, name: string): Promise<Running> {
  const { sinkUrl, redisUrl = '', redisPid = 0, postgresPid } = ground
  const env = { BENCH_SINK: sinkUrl, DATABASE_URL: ground.urlOf(name), REDIS_URL: redisUrl }
  const child = await start('./textbook.js', env)
  const { url } = child.hello as { url: string }
  return {
    url,
    pids: { service: child.pid, postgres: postgresPid, redis: redisPid },
    database: name,
    stop: child.stop
  }
}

/** Its own processes, without PostgreSQL and Redis. */
export function ownPids({ pids }: Running): Record<string, number> {
  const { postgres: _, redis: __, ...own } = pids
  return own
}

/** Kills it at once. Its data is dropped anyway, so it needs no clean stop. */
export async function discard(running: Running): Promise<void> {
  for (const pid of Object.values(ownPids(running))) {
    try {
      process.kill(pid, 'SIGKILL')
    } catch {} // it has ended by itself
  }
  await running.stop()
}

/** `settings`: see relay.ts. */
export async function startRelay(settings: Record<string, string>): Promise<Running> {
  const child = await start('./relay.js', { BENCH_PIPELINING: '1', ...settings })
  return { url: (child.hello as { url: string }).url, pids: { service: child.pid }, stop: child.stop }
}

/** Starts the real process, with an operator's settings; only the log of single attempts is off. */
export async function startAckbox(
  ground: Ground,
  name: string,
  redisUrl: string | undefined,
  more: Record<string, string> = {}
): Promise<Running> {
  await emptyAckbox(ground, name)
  return await runAckbox(ground, name, redisUrl, more)
}

/** A new database with the tables of Ackbox. Returns its URL. */
export async function emptyAckbox(ground: Ground, name: string): Promise<string> {
  const url = await ground.database(name)
  await migrate(url)
  return url
}

/** Starts Ackbox on the existing content of the database: as one more process, or again after a stop. */
export async function runAckbox(
  ground: Ground,
  name: string,
  redisUrl: string | undefined,
  more: Record<string, string> = {}
): Promise<Running> {
  const port = await freePort()
  const {
    PATH = '',
    HOME = '',
    BENCH_NODE = '',
    BENCH_PIPELINING = '1',
    BENCH_CONCURRENCY = '200'
  } = process.env
  const flags = BENCH_NODE.split(' ').filter(flag => flag !== '')
  const settings = {
    DATABASE_URL: ground.urlOf(name),
    ...(redisUrl !== undefined && { REDIS_URL: redisUrl }),
    HANDLERS_DIR: fileURLToPath(new URL('./handlers', import.meta.url)),
    BENCH_SINK: ground.sinkUrl,
    BENCH_PIPELINING,
    BENCH_CONCURRENCY,
    SECRET: 'a secret that is good enough for a benchmark',
    EGRESS_ALLOW: new URL(ground.sinkUrl).host,
    AUTH: 'off',
    HOST: '127.0.0.1',
    PORT: `${port}`,
    LOG_LEVEL: 'warn',
    ...more
  }
  const main = fileURLToPath(new URL('../src/main.js', import.meta.url))
  const child = spawn(process.execPath, [...flags, main], {
    env: { PATH, HOME, ...settings },
    stdio: ['ignore', 'pipe', 'pipe']
  })
  // Without the greeting, whose lines are empty or begin with two spaces.
  createInterface(child.stderr).on('line', line => /^(?! {2}\S|$)/.test(line) && console.error(line))
  const log = createInterface(child.stdout)
  let lines = 0
  // The first lines of the log are enough.
  log.on('line', line => lines++ < 10 && console.error(`  ${name}: ${line}`))
  const url = `http://127.0.0.1:${port}`
  try {
    await until(`${name} to get ready`, async () => {
      if (child.exitCode !== null)
        throw new Error(`${name} ended with exit code ${child.exitCode} at its start`)
      const answer = await request(`${url}/readyz`).catch(() => undefined)
      await answer?.body.dump()
      return answer?.statusCode === 200
    })
  } catch (err) {
    await stop(child)
    throw err
  }
  const pids = {
    service: child.pid ?? 0,
    postgres: ground.postgresPid,
    ...(redisUrl !== undefined && { redis: ground.redisPid ?? 0 })
  }
  return { url, pids, database: name, stop: () => stop(child) }
}
