// One real PostgreSQL for all test files of this user: the first process starts it, the others share it, and
// test/support/reaper.ts stops it some seconds after the last process has ended, even if that one was killed.

import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import fs from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import postgres from 'postgres'
import type { Test } from 'tap'
import { migrate } from '../../src/db/migrate.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { openReads, type Reads } from '../../src/db/reads.ts'
import type { Binaries } from '../../src/embedded/initdb.ts'
import { runPostmaster, urlOf, type Postmaster } from '../../src/embedded/postmaster.ts'
import { announce } from './presence.ts'
import { dataRoot } from './memory.ts'

export interface TestDb {
  url: string
  sql: Sql
  reads: Reads
}

/** The folder of another version of the npm package with the binaries: `npm run test:oldest`. */
const otherVersion = process.env['TEST_POSTGRES']

// Any fixed number works.
const lock = 77_001

let server: Promise<Postmaster> | undefined
let made = 0

/** On a busy machine, a statement that writes ten thousands of rows takes longer than the limit of the service. */
export const patientMs = 300_000

/** A migrated database for this test only, dropped when the test is over. */
export async function testDb(t: Test, { max = 4 }: { max?: number } = {}): Promise<TestDb> {
  const url = await emptyDb(t, await template())
  const sql = openDb(url, { max, applicationName: 'ackbox test', statementTimeoutMs: patientMs })
  t.teardown(() => sql.end({ timeout: 5 }))
  return { url, sql, reads: readsOf(t, sql) }
}

/** The read pool of the API, for the database of this pool and on the same server. */
export function readsOf(t: Test, { options }: Sql): Reads {
  const url = urlOf({ port: options.port[0] ?? 5432, password: String(options.pass) }, options.database)
  const reads = openReads(url)
  t.teardown(reads.end)
  return reads
}

/** A database for this test only, without a table. */
export async function emptyDb(t: Test, from = 'template1'): Promise<string> {
  const name = `test_${process.pid}_${++made}`
  // Before PostgreSQL 15 it was the only strategy.
  const strategy = (await postgresVersion()) < 15 ? '' : 'strategy file_copy'
  await admin(sql => sql.unsafe(`create database ${name} template ${from} ${strategy}`))
  t.teardown(() => admin(sql => sql.unsafe(`drop database if exists ${name} with (force)`)))
  return urlOf(await shared(), name)
}

/** Changes with every migration. */
function migrationsHash(): string {
  const from = path.resolve(import.meta.dirname, '../../../src/db/migrations')
  const hash = createHash('sha256')
  const names = fs.readdirSync(from).filter(name => name.endsWith('.sql'))
  for (const name of names.toSorted()) hash.update(fs.readFileSync(path.join(from, name)))
  return hash.digest('hex').slice(0, 40)
}

async function template(): Promise<string> {
  // Its partitions end some days after the day on which it was made, and the server's folder stays.
  const name = `template_${migrationsHash()}_${new Date().toISOString().slice(0, 10).replaceAll('-', '')}`
  await admin(async sql => {
    const there = () => sql`select from pg_database where datname = ${name} and datistemplate`
    if ((await there()).length > 0) return
    await sql`select pg_advisory_lock(${lock})`
    if ((await there()).length > 0) return
    await sql.unsafe(`drop database if exists ${name} with (force)`)
    await sql.unsafe(`create database ${name}`)
    await migrate(urlOf(await shared(), name))
    await sql.unsafe(`alter database ${name} is_template true allow_connections false`)
  })
  return name
}

async function admin<T>(work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(urlOf(await shared()), {
    max: 1,
    fetch_types: false,
    onnotice: () => {},
    connection: { application_name: 'ackbox test' }
  })
  try {
    return await work(sql)
  } finally {
    await sql.end({ timeout: 5 })
  }
}

/** False, or the reason why a test cannot count the rows that a statement reads. */
export async function cannotCountReads(): Promise<string | false> {
  return (await postgresVersion()) < 15 && 'before PostgreSQL 15 the counts come late'
}

let version: Promise<number> | undefined

/** The major version of the tests' PostgreSQL. */
export async function postgresVersion(): Promise<number> {
  version ??= admin(async sql => {
    const [row] = await sql<[{ version: number }]>`
      select current_setting('server_version_num')::int / 10000 as version`
    return row.version
  })
  return await version
}

async function shared(): Promise<Postmaster> {
  return await (server ??= start())
}

async function start(): Promise<Postmaster> {
  const name = otherVersion === undefined ? '' : `-${path.basename(otherVersion)}`
  const dataDir = path.join(dataRoot, `ackbox-test-postgres${name}-${os.userInfo().uid}`)
  fs.mkdirSync(dataDir, { recursive: true, mode: 0o711 })
  announce(dataDir)
  const binaries = otherVersion && ((await import(path.join(otherVersion, 'dist/index.js'))) as Binaries)
  // No data here has to survive a crash of the machine: without fsync a clone takes a tenth of the time.
  const settings = { fsync: 'off', full_page_writes: 'off', max_connections: '300' }
  const postmaster = await runPostmaster({ dataDir, settings, ...(binaries && { binaries }) })
  const reaper = path.join(path.dirname(fileURLToPath(import.meta.url)), 'reaper.js')
  spawn(process.execPath, [reaper, dataDir, String(postmaster.pid)], {
    detached: true,
    stdio: 'ignore'
  }).unref()
  return postmaster
}

/** The number of statements in this database that wait for a lock. */
export async function lockWaits(sql: Sql): Promise<number> {
  const [{ count }] = await sql<[{ count: number }]>`
    select count(*)::int as count from pg_stat_activity
    where wait_event_type = 'Lock' and datname = current_database()`
  return count
}
