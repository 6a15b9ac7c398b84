// ackbox migrate: applies the missing migrations. It can run again, and several runs at the same time are safe.
import { environment, readDatabaseUrl, readFailpoints, SettingError } from '../service/config.ts'
import { foreignCode } from '../db/foreign-code.ts'
import { migrate, pendingMigrations } from '../db/migrate.ts'
import { checkDatabase, isInfrastructure, DatabaseError, openDb } from '../db/pool.ts'
import { armFailpoints } from '../runtime/failpoint.ts'
import { commandLine } from '../runtime/package.ts'
import { readArguments } from './arguments.ts'
import { withoutTexts } from './doctor/holders.ts'
import { explain } from './explain.ts'
import { messageOf, rootOf } from '../runtime/errors.ts'

export const help = `${commandLine('migrate [--dry-run]')}

Applies the missing migrations to the database of DATABASE_URL. It is safe to run again.

  --dry-run   prints the missing migrations, and changes nothing
  --help

Exit: 0 all migrations are applied · 1 an error, which is printed, or --dry-run found missing migrations`

const allApplied = 'nothing to do: all migrations are applied'

export async function run(args: string[]): Promise<void> {
  const { values } = readArguments({ args, options: { 'dry-run': { type: 'boolean' } } })
  try {
    const env = environment()
    const url = readDatabaseUrl(env)
    if (url === undefined)
      throw new SettingError('set DATABASE_URL; an embedded PostgreSQL is migrated at start')
    const failpoints = readFailpoints(env['FAILPOINTS'], env)
    if (typeof failpoints === 'string') throw new SettingError(`FAILPOINTS ${failpoints}`)
    armFailpoints(failpoints)
    if (failpoints.size > 0)
      console.error(`FAILPOINTS is set: this command breaks at ${[...failpoints.keys()].join(', ')}`)
    await checkDatabase(url)
    const missing = await pendingMigrations(url)
    if (values['dry-run']) {
      console.log(missing.length > 0 ? `to apply: ${missing.join(', ')}` : allApplied)
      process.exitCode = missing.length > 0 ? 1 : 0
      return
    }
    // Not to stdout, which is for the applied migrations.
    if (missing.length > 0) console.error(`to apply: ${missing.join(', ')}`)
    const applied = await withBlockersPrinted(url, () => migrate(url))
    console.log(applied.length > 0 ? `applied ${applied.join(', ')}` : allApplied)
    await printForeignCode(url)
  } catch (err) {
    const { code } = rootOf(err) as NodeJS.ErrnoException
    const isKnown =
      err instanceof SettingError || err instanceof DatabaseError || isInfrastructure(err) || code === '42501'
    // For an error of a migration's statement, the message of PostgreSQL is more useful than the statement and the stack.
    console.error(
      isKnown
        ? explain(err)
        : `ackbox: Migration failed: ${messageOf(rootOf(err))}. Fix the cause and run it again.`
    )
    process.exitCode = 1
  }
}

/** The rights of other roles are not ours to change: other programs of the database may need them. */
async function printForeignCode(url: string): Promise<void> {
  const sql = openDb(url, { max: 1, applicationName: 'ackbox migrate' })
  try {
    for (const { found, remedy } of await foreignCode(sql)) console.error(`warning: ${found}: ${remedy}`)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

const printMs = 5_000

/** Prints, every 5 s, the sessions whose locks the migration waits for: a forgotten transaction can block the migration for ever. */
async function withBlockersPrinted<T>(url: string, work: () => Promise<T>): Promise<T> {
  const sql = openDb(url, { max: 1, applicationName: 'ackbox migrate watch' })
  const printBlockers = async (): Promise<void> => {
    const holders = await sql<{ pid: number; user: string | null; query: string | null }[]>`
      select distinct h.pid, h.usename as user, left(${sql.unsafe(withoutTexts('h.query'))}, 200) as query
      from pg_stat_activity w
      cross join lateral unnest(pg_blocking_pids(w.pid)) as b (pid) join pg_stat_activity h on h.pid = b.pid
      where w.application_name = 'ackbox migrate' and w.datname = current_database()`
    for (const { pid, user, query } of holders)
      console.error(`waiting for pid ${pid} of ${user ?? '?'}: ${query || 'its query cannot be seen'}`)
  }
  const timer = setInterval(() => void printBlockers().catch(() => {}), printMs)
  try {
    return await work()
  } finally {
    clearInterval(timer)
    await sql.end({ timeout: 1 })
  }
}
