import type { Logger } from '../runtime/logger.ts'
import { drizzle, migrate as run } from './drizzle.ts'
import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { failpoint } from '../runtime/failpoint.ts'
import { plainArray } from './arrays.ts'
import { isCollision } from './batch.ts'
import { connect, type PostgresClient } from './pool.ts'
import { ownSessionSettings } from '../runtime/session-settings.ts'

// Any fixed number does; all versions of Ackbox must use the same.
const lock = 4_162_695_513

/** A table of our own: drizzle compares times only, and another program's migrations in its default table would hide ours. */
const migrationsTable = '__ackbox_migrations'

/** PostgreSQL takes a second (`deadlock_timeout`) to find a deadlock. */
const mostTries = 20

interface Journal {
  entries: { tag: string; when: number }[]
}

/** Brings the tables up to date. After a kill at any statement it can run again; two runs at once apply everything once. */
export async function migrate(url: string, log?: Pick<Logger, 'info'>, from = folder()): Promise<string[]> {
  return await withClient(url, async sql => {
    // drizzle takes no lock of its own: two processes that start at once would both create the tables.
    await sql`select pg_advisory_lock(${lock})`
    await leaveSharedTable(sql, from)
    const todo = await pending(sql, from)
    if (todo.length > 0) {
      await apply(sql, from)
      log?.info({ migrations: todo }, 'migrate.done')
    }
    return todo
  })
}

/**
 * Applies all missing migrations in one transaction. Its locks may deadlock with those of a service that runs meanwhile: PostgreSQL then
 * cancels one of the two, and nothing of it is written.
 */
async function apply(sql: PostgresClient, migrationsFolder: string): Promise<void> {
  const logger = { logQuery: () => failpoint('migrate.step') }
  for (let tries = 1; ; tries++) {
    try {
      return await run(drizzle(sql, { logger }), { migrationsFolder, migrationsTable })
    } catch (err) {
      if (!isCollision(err) || tries === mostTries) throw err
    }
  }
}

/** The names of the migrations that `migrate` would apply now, oldest first. */
export async function pendingMigrations(url: string): Promise<string[]> {
  return await withClient(url, sql => pending(sql, folder()))
}

/**
 * The number of applied migrations that are newer than all of ours: a newer version has been here. Migrations only add,
 * so this version continues beside it, but its log should show it.
 */
export async function unknownMigrations(url: string): Promise<number> {
  return await withClient(url, async sql => {
    const ours = Math.max(0, ...journal(folder()).map(entry => entry.when))
    const applied = await appliedAt(sql, folder())
    return applied.filter(when => when > ours).length
  })
}

/** A client of its own: `drizzle(sql)` changes how the client it is given parses dates and json; the lock needs one session. */
async function withClient<T>(url: string, work: (sql: PostgresClient) => Promise<T>): Promise<T> {
  const sql = connect(url, {
    max: 1,
    max_lifetime: null,
    connect_timeout: 5,
    connection: { ...ownSessionSettings, application_name: 'ackbox migrate', synchronous_commit: 'on' }
  })
  try {
    // A migration may take long, and wait long for a lock. transaction_timeout exists since PostgreSQL 17.
    await sql`
      select set_config(name, '0', false) from pg_settings
      where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout')`
    return await work(sql)
  } finally {
    await sql.end({ timeout: 5 })
  }
}

async function pending(sql: PostgresClient, from: string): Promise<string[]> {
  const last = Math.max(0, ...(await appliedAt(sql, from)))
  return journal(from)
    .filter(entry => entry.when > last)
    .map(entry => entry.tag)
}

/**
 * Copies our rows of drizzle's default table, which 1.0.0 used, and which other programs of the database may use. They stay there, for an
 * older version that starts again.
 */
async function leaveSharedTable(sql: PostgresClient, from: string): Promise<void> {
  const { own, shared } = await tables(sql)
  if (own || !shared) return
  await sql.begin(async tx => {
    await tx`create table drizzle.__ackbox_migrations (id serial primary key, hash text not null, created_at bigint)`
    await tx`
      insert into drizzle.__ackbox_migrations (hash, created_at)
      select hash, created_at from drizzle.__drizzle_migrations
      where created_at = any(${plainArray(times(from))}::bigint[]) order by created_at`
  })
}

async function appliedAt(sql: PostgresClient, from: string): Promise<number[]> {
  const { own, shared } = await tables(sql)
  if (!own && !shared) return []
  const rows = own
    ? await sql<{ created_at: string }[]>`select created_at from drizzle.__ackbox_migrations`
    : await sql<{ created_at: string }[]>`
        select created_at from drizzle.__drizzle_migrations where created_at = any(${plainArray(times(from))}::bigint[])`
  return rows.map(row => Number(row.created_at))
}

async function tables(sql: PostgresClient): Promise<{ own: boolean; shared: boolean }> {
  const [found] = await sql<[{ own: boolean; shared: boolean }]>`
    select to_regclass('drizzle.__ackbox_migrations') is not null as own,
      to_regclass('drizzle.__drizzle_migrations') is not null as shared`
  return found
}

/** They tell our rows from those of others. The hashes do not: the text of an applied migration may have been mended since then. */
const times = (from: string): number[] => journal(from).map(entry => entry.when)

const journal = (from: string) =>
  (JSON.parse(readFileSync(path.join(from, 'meta/_journal.json'), 'utf8')) as Journal).entries

/** The .sql files are not compiled: they stay in src/, wherever this file runs from. */
function folder(): string {
  for (const start of [path.dirname(fileURLToPath(import.meta.url)), process.cwd()]) {
    for (let at = start; at !== path.dirname(at); at = path.dirname(at)) {
      const there = path.join(at, 'src/db/migrations')
      if (existsSync(path.join(there, 'meta/_journal.json'))) return there
    }
  }
  throw new Error('src/db/migrations is missing: was it left out of the image?')
}
