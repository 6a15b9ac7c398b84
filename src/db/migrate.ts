import { existsSync, readFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { drizzle } from 'drizzle-orm/postgres-js'
import { readMigrationFiles } from 'drizzle-orm/migrator'
import { migrate as apply } from 'drizzle-orm/postgres-js/migrator'
import postgres from 'postgres'
import { failpoint } from '../failpoint.ts'

// Any fixed number does; all versions of Ackbox must use the same.
const lock = 4_162_695_513

export interface MigrateLog {
  info(fields: object, message: string): void
}

interface Journal {
  entries: { tag: string; when: number }[]
}

/** Brings the tables up to date. Killed at any statement it can be run again; two at once apply everything once. */
export async function migrate(url: string, log?: MigrateLog): Promise<string[]> {
  return await withClient(url, async sql => {
    // drizzle takes no lock of its own: two processes that start at once would both create the tables.
    await sql`select pg_advisory_lock(${lock})`
    const todo = await pending(sql)
    if (todo.length > 0) {
      await apply(drizzle(sql, { logger: { logQuery: () => failpoint('migrate.step') } }), {
        migrationsFolder: folder()
      })
      log?.info({ migrations: todo }, 'migrate.done')
    }
    return todo
  })
}

/** The names of those that `migrate` would apply now, oldest first. */
export async function pendingMigrations(url: string): Promise<string[]> {
  return await withClient(url, pending)
}

/** A client of its own: `drizzle(sql)` changes how the client it is given parses dates and json; the lock needs one session. */
async function withClient<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, {
    max: 1,
    max_lifetime: null,
    connect_timeout: 5,
    onnotice: () => {},
    connection: { application_name: 'ackbox migrate' }
  })
  try {
    await sql`set statement_timeout = 0`
    return await work(sql)
  } finally {
    await sql.end({ timeout: 5 })
  }
}

async function pending(sql: postgres.Sql): Promise<string[]> {
  const [found] = await sql<{ there: boolean }[]>`
    select to_regclass('drizzle.__drizzle_migrations') is not null as there`
  const rows = found?.there
    ? await sql<{ last: string | null }[]>`select max(created_at) as last from drizzle.__drizzle_migrations`
    : []
  const last = Number(rows[0]?.last ?? 0)
  const journal = JSON.parse(readFileSync(path.join(folder(), 'meta/_journal.json'), 'utf8')) as Journal
  return journal.entries.filter(entry => entry.when > last).map(entry => entry.tag)
}

/** Changes with every migration; names the template of the test databases. */
export function migrationsHash(): string {
  return readMigrationFiles({ migrationsFolder: folder() })
    .map(file => file.hash.slice(0, 8))
    .join('')
    .slice(-40)
}

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
