// All parts of a run of producers: Ackbox with its PostgreSQL, a shop with a PostgreSQL and a MariaDB, relays, the sink.
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, mkdirSync, mkdtempSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import mysql from 'mysql2/promise'
import { freePort } from '../../src/embedded/port.ts'
import { answerCheck, ddl, type CheckRequest } from '../../src/producer/producer.ts'
import postgres from 'postgres'
import { balance } from '../balancer.ts'
import type { Exit } from '../history.ts'
import { serveMariadb, type MariadbServer } from '../mariadb.ts'
import { copyService, type Mutant } from '../mutant.ts'
import type { Queue } from '../nemesis-plan.ts'
import { removeFolder } from '../remove-folder.ts'
import { servePostgres, serveRedis, type PostgresServer } from '../servers.ts'
import { leaseMarginMs, secretVariable, sweepMs } from '../terms.ts'
import { callWitness, type Witness } from '../witness.ts'
import { keep, type Kept } from './keep.ts'
import { pointsOf } from './plan.ts'

export interface Stand {
  folder: string
  /** The URL of the balancer, and the headers of a caller. */
  url: string
  headers: Record<string, string>
  services: Kept[]
  relays: Kept[]
  producers: Kept[]
  ackboxDb: PostgresServer
  shopDb: PostgresServer
  mariadb: MariadbServer & { pool: mysql.Pool }
  witness: Witness
  exits: Exit[]
  /** The number of each answer to checks of half messages. */
  checks: Record<string, number>
  close(): Promise<void>
}

export interface StandOptions {
  seed: number
  queue: Queue
  /** Where package.json is. */
  root: string
  mutant?: Mutant
  keep: boolean
  /** No process has failpoints. */
  isCalm: boolean
  onMessage: (message: unknown) => void
}

type Closers = (() => unknown)[]

export async function startStand(options: StandOptions): Promise<Stand> {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-chaos-'))
  chmodSync(folder, 0o755) // as root, PostgreSQL runs as another user
  const closers: Closers = []
  if (options.keep) console.error(`chaos: kept in ${folder}`)
  else closers.push(() => removeFolder(folder))
  const close = async () => {
    for (const closer of closers.splice(0).reverse())
      await Promise.resolve(closer()).catch((err: Error) => console.error(`chaos: ${err.message}`))
  }
  try {
    return await build(options, folder, closers, close)
  } catch (err) {
    await close()
    throw err
  }
}

const shopTables = `
  create table shop_order (
    id bigint generated always as identity, task_no text primary key, way text not null, message_code text not null,
    body text not null, waits_for text not null, delay_ms int, posted boolean not null default false
  )`

async function build(
  { seed, queue, root, mutant, isCalm, onMessage }: StandOptions,
  folder: string,
  closers: Closers,
  close: () => Promise<void>
): Promise<Stand> {
  const dist = copyService(root, folder, mutant)
  const shopFolder = join(folder, 'shop')
  mkdirSync(shopFolder, { mode: 0o755 })
  const [ackboxDb, shopDb] = await Promise.all([servePostgres(folder), servePostgres(shopFolder)])
  closers.push(ackboxDb.close, shopDb.close)
  const mariadb = await shopInMariadb(shopFolder, closers)
  const redis = queue === 'redis' ? await serveRedis(folder) : undefined
  if (redis) closers.push(redis.close)
  const signing = `whsec_${randomBytes(32).toString('base64')}`
  // No task may end FAILED, because others wait for it.
  const witness = await callWitness(seed, signing, { CHAOS_DOOMED: 'off' })
  closers.push(witness.close)
  const checks: Record<string, number> = {}
  const checkUrl = await answerChecks(shopDb.url, checks, closers)

  const ports = [await freePort(), await freePort()]
  const balancer = await balance(ports.map(port => `http://127.0.0.1:${port}`))
  closers.push(balancer.close)
  const env: Record<string, string> = {
    DATABASE_URL: ackboxDb.url,
    ...(redis && { REDIS_URL: redis.url }),
    SECRET: randomBytes(32).toString('base64url'),
    [secretVariable]: signing,
    CHAOS_SINK: witness.url,
    CHAOS_CHECK: checkUrl,
    HANDLERS_DIR: join(dist, 'chaos/handlers'),
    EGRESS_ALLOW: [witness.url, checkUrl].map(url => new URL(url).host).join(),
    PUBLIC_URL: balancer.url,
    ALARM_WEBHOOK_URL: `${witness.url}/alarm`,
    LEASE_MARGIN_MS: `${leaseMarginMs}`,
    SWEEP_MS: `${sweepMs}`,
    AUTH: 'on',
    LOG_LEVEL: 'debug'
  }
  const cli = join(dist, 'src/cli/ackbox.js')
  const run = async (...args: string[]) =>
    (
      await promisify(execFile)(process.execPath, [cli, ...args], {
        env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
        cwd: folder
      })
    ).stdout.trim()
  await run('migrate')
  const key = await run('key', 'create', 'chaos', '--scopes', 'tasks:write,tasks:read,ops:read,ops:write')
  await ackboxDb.sql.unsafe(`
    create role shop login password '${ackboxDb.password}';
    create schema shop authorization shop;
    alter role shop set search_path = shop;
    set role shop; set search_path = shop; ${shopTables}; reset role; reset search_path`)
  await run('outbox', 'grant', 'shop')
  await shopDb.sql.unsafe(`${ddl.postgres}; ${shopTables}`)

  const exits: Exit[] = []
  const keeping = (
    name: string,
    program: string,
    args: string[],
    more: Record<string, string>,
    ready: RegExp
  ) => {
    const kept = keep({
      name,
      program: join(dist, program),
      args,
      env: more,
      points: isCalm || name.startsWith('producer') ? () => '' : pointsOf(seed, name),
      folder,
      readyLine: ready,
      onExit: exit => exits.push(exit),
      onMessage
    })
    closers.push(async () => {
      const ended = kept.end()
      kept.kill()
      await ended
    })
    return kept
  }
  const services = ports.map((port, n) =>
    keeping(`service-${n + 1}`, 'src/main.js', [], { ...env, PORT: `${port}` }, /"msg":"ready"/)
  )
  const relay = (name: string, from: string) =>
    keeping(
      name,
      'src/cli/ackbox.js',
      ['relay', '--from', from, '--to', balancer.url, '--batch', '20'],
      { ACKBOX_KEY: key },
      /relay\.ready/
    )
  const relays = [
    relay('relay-postgres-1', shopDb.url),
    relay('relay-postgres-2', shopDb.url),
    relay('relay-mariadb-1', mariadb.url)
  ]
  const shop: Record<string, string> = {
    CHAOS_ACKBOX_DB: ackboxDb.url.replace('//postgres:', '//shop:'),
    CHAOS_SHOP_DB: shopDb.url,
    CHAOS_MARIADB: mariadb.url,
    CHAOS_ACKBOX: balancer.url,
    CHAOS_KEY: key
  }
  const producers = [1, 2].map(n =>
    keeping(`producer-${n}`, 'chaos/producers/producer.js', [], shop, /producer\.ready/)
  )
  const endAll = () => {
    const pids = [...services, ...relays, ...producers].map(one => one.pid())
    const servers = [...(redis?.pids() ?? []), mariadb.pid(), ...ackboxDb.pids(), ...shopDb.pids()]
    for (const pid of [...pids, ...servers]) slay(pid)
  }
  process.once('exit', endAll)
  closers.push(() => process.off('exit', endAll))
  await Promise.all(ports.map(port => balancer.sees(`http://127.0.0.1:${port}`)))
  return {
    folder,
    url: balancer.url,
    headers: { authorization: `Bearer ${key}` },
    services,
    relays,
    producers,
    ackboxDb,
    shopDb,
    mariadb,
    witness,
    exits,
    checks,
    close
  }
}

async function shopInMariadb(home: string, closers: Closers) {
  const server = await serveMariadb(home, { isDurable: true })
  closers.push(() => server.kill())
  const url = `mysql://root@127.0.0.1:${server.port}/shop`
  const admin = await mysql.createConnection({ uri: url.replace(/shop$/, 'mysql'), multipleStatements: true })
  await admin.query(`create database shop; use shop; ${ddl.mysql}
    create table shop_order (
      task_no varchar(128) primary key, way text not null, message_code text not null, body text not null, waits_for text not null
    ) engine = InnoDB`)
  await admin.end()
  const pool = mysql.createPool({ uri: url, connectionLimit: 2 })
  closers.push(() => pool.end())
  return { ...server, url, pool }
}

/** The shop's answers to checks, in a process without faults: the faults of its database are enough. */
async function answerChecks(url: string, checks: Record<string, number>, closers: Closers): Promise<string> {
  const sql = postgres(url, { max: 8, onnotice: () => {} })
  closers.push(() => sql.end({ timeout: 1 }))
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('error', () => {})
    response.on('error', () => {})
    request.on('end', () => {
      const check = JSON.parse(Buffer.concat(chunks).toString()) as CheckRequest
      const answer = (status: number, state: string): void => {
        checks[state] = (checks[state] ?? 0) + 1
        response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify({ state }))
      }
      answerCheck(sql, check).then(
        ({ state }) => answer(200, state),
        () => answer(503, 'NONE')
      )
    })
  })
  server.listen(0, '127.0.0.1')
  await new Promise(resolve => server.once('listening', resolve))
  closers.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

function slay(pid: number): void {
  try {
    if (pid > 0) process.kill(pid, 'SIGKILL')
  } catch {} // it is gone already
}
