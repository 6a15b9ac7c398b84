// All parts of a run of receivers, in its own folder.
import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { chmodSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import mysql from 'mysql2/promise'
import postgres from 'postgres'
import { ddl } from '../../src/consumer/ddl.ts'
import { freePort } from '../../src/embedded/port.ts'
import type { Exit } from '../history.ts'
import { serveMariadb } from '../mariadb.ts'
import { member, type Member } from '../member.ts'
import { copyService, type Mutant } from '../mutant.ts'
import { removeFolder } from '../remove-folder.ts'
import { servePostgres, serveRedis } from '../servers.ts'
import { leaseMarginMs, secretVariable, sweepMs } from '../terms.ts'
import { supervise, type Supervised } from './supervised.ts'
import { faultsFile, tables } from './terms.ts'

export interface StandOptions {
  seed: number
  queue: 'redis' | 'postgres'
  /** Where package.json is. */
  root: string
  mutant?: Mutant
  keep: boolean
}

export interface Stand {
  /** Each has all roles. */
  services: [Member, Member]
  receivers: Supervised[]
  /** Of all of them. */
  exits: Exit[]
  databases: Record<string, { select(text: string): Promise<readonly Record<string, unknown>[]> }>
  /** From here on no receiver dies any more. */
  calm(): void
  close(): Promise<void>
}

export async function startStand(options: StandOptions): Promise<Stand> {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-chaos-'))
  chmodSync(folder, 0o755) // as root, PostgreSQL runs as another user
  const closers: (() => unknown)[] = []
  if (options.keep) console.error(`chaos: kept in ${folder}`)
  else closers.push(() => removeFolder(folder))
  const close = async (): Promise<void> => {
    for (const closer of closers.splice(0).reverse())
      await Promise.resolve(closer()).catch((err: Error) => console.error(`chaos: ${err.message}`))
  }
  try {
    return { ...(await build(options, folder, closers)), close }
  } catch (err) {
    await close()
    throw err
  }
}

async function build(
  { seed, queue, root, mutant }: StandOptions,
  folder: string,
  closers: (() => unknown)[]
): Promise<Omit<Stand, 'close'>> {
  const dist = copyService(root, folder, mutant)
  cpSync(join(root, 'dist/chaos'), join(dist, 'chaos'), { recursive: true })
  const server = await servePostgres(folder)
  closers.push(server.close)
  const redis = queue === 'redis' ? await serveRedis(folder) : undefined
  if (redis) closers.push(redis.close)
  const home = join(folder, 'mariadb')
  mkdirSync(home)
  const mariadb = await serveMariadb(home, { isDurable: true })
  closers.push(() => mariadb.kill())

  await server.sql`create database receivers`
  const urls = {
    postgres: server.url.replace(/\/[^/]*$/, '/receivers'),
    mariadb: `mysql://root@127.0.0.1:${mariadb.port}/receivers`
  }
  const own = postgres(urls.postgres, { max: 2, onnotice: () => {} })
  closers.push(() => own.end({ timeout: 1 }))
  await own.unsafe(ddl.postgres + tables)
  const admin = await mysql.createConnection({ host: '127.0.0.1', port: mariadb.port, user: 'root' })
  await admin.query('create database receivers')
  await admin.end()
  const pool = mysql.createPool({ uri: urls.mariadb, multipleStatements: true, connectionLimit: 2 })
  closers.push(() => pool.end())
  await pool.query(ddl.mysql + tables)

  const signing = `whsec_${randomBytes(32).toString('base64')}`
  const places = Object.entries(urls).flatMap(([name, url]) =>
    [1, 2].map(nth => ({ name: `${name}-${nth}`, url }))
  )
  const ports = await Promise.all(places.map(() => freePort()))
  const at = (nth: number): string => `http://127.0.0.1:${ports[nth]}`
  const env: Record<string, string> = {
    DATABASE_URL: server.url,
    ...(redis && { REDIS_URL: redis.url }),
    SECRET: randomBytes(32).toString('base64url'),
    [secretVariable]: signing,
    CHAOS_POSTGRES_1: at(0),
    CHAOS_POSTGRES_2: at(1),
    CHAOS_MARIADB_1: at(2),
    CHAOS_MARIADB_2: at(3),
    HANDLERS_DIR: join(dist, 'chaos/receivers/handlers'),
    EGRESS_ALLOW: ports.map(port => `127.0.0.1:${port}`).join(','),
    LEASE_MARGIN_MS: `${leaseMarginMs}`,
    SWEEP_MS: `${sweepMs}`,
    AUTH: 'off',
    DEMO: 'off'
  }
  await promisify(execFile)(process.execPath, [join(dist, 'src/cli/ackbox.js'), 'migrate'], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
    cwd: folder
  })
  const exits: Exit[] = []
  const onExit = (exit: Exit): void => void exits.push(exit)
  const service = async (nth: number): Promise<Member> => {
    const port = await freePort()
    return member({
      name: `service-${nth}`,
      role: 'api',
      roles: 'api,worker,dispatcher',
      port,
      build: () => ({ main: join(dist, 'src/main.js'), handlers: join(dist, 'chaos/receivers/handlers') }),
      env: { ...env, PUBLIC_URL: `http://127.0.0.1:${port}` },
      folder,
      onExit
    })
  }
  const services: Stand['services'] = [await service(1), await service(2)]
  closers.push(() => Promise.all(services.map(one => one.kill())))
  const faults = join(folder, faultsFile)
  writeFileSync(faults, '')
  const receivers = places.map(({ name, url }, nth) =>
    supervise({
      name,
      main: join(dist, 'chaos/receivers/receiver.js'),
      env: { [secretVariable]: signing, DATABASE: url, PORT: `${ports[nth]}`, SEED: `${seed}` },
      folder,
      onExit
    })
  )
  closers.push(() => Promise.all(receivers.map(one => one.end())))
  // For the second Ctrl-C, or the death of the run: processes in their own groups would outlive it.
  const endAll = (): void => {
    const pids = [
      ...services.map(one => one.pid()),
      mariadb.pid(),
      ...server.pids(),
      ...(redis?.pids() ?? [])
    ]
    for (const pid of pids.filter(one => one > 0))
      try {
        process.kill(pid, 'SIGKILL')
      } catch {} // it is gone already
  }
  process.once('exit', endAll)
  closers.push(() => void process.off('exit', endAll))
  await Promise.all(services.map(one => one.start()))
  return {
    services,
    receivers,
    exits,
    databases: {
      postgres: { select: async text => await own.unsafe(text) },
      mariadb: { select: async text => (await pool.query(text))[0] as Record<string, unknown>[] }
    },
    calm: () => rmSync(faults, { force: true })
  }
}
