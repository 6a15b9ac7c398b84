// Shared by the commands that use the database.
import { userInfo } from 'node:os'
import { checkServer, DatabaseError, isInfrastructure, locatePrimary, openDb, type Sql } from '../db/pool.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../embedded/postmaster.ts'
import { commandLine } from '../runtime/package.ts'
import { SetupError } from '../runtime/setup-error.ts'
import { SettingError, type Config } from '../service/config.ts'

/** Prints what went wrong and what to do. Throws again what it does not know: a wrong command line, or a bug. */
export function reportFailure(err: unknown): void {
  const known = [SettingError, DatabaseError, SetupError]
  if (err instanceof Error && known.some(kind => err instanceof kind)) {
    console.error(err.message)
  } else if (isInfrastructure(err)) {
    console.error(`The database cannot be reached. \`${commandLine('doctor')}\` shows why.`)
  } else if (err instanceof Error && 'code' in err && err.code === '42P01') {
    console.error(
      `The database has no tables yet: run ${commandLine('migrate')} (or ${commandLine('start')} for the embedded one)`
    )
  } else throw err
  process.exitCode = 1
}

/** Without DATABASE_URL: the embedded one. It is started if needed, and then stopped again. */
export async function withDatabase(config: Config, act: (sql: Sql) => Promise<void>): Promise<void> {
  const own = config.databaseUrl === undefined ? await runPostmaster({ dataDir: config.dataDir }) : null
  const url = own ? urlOf(own) : (config.databaseUrl ?? '')
  await locatePrimary(url)
  const sql = openDb(url, { max: 1 })
  try {
    await checkServer(sql)
    await act(sql)
  } finally {
    await sql.end({ timeout: 5 })
    if (own && !own.adopted) await stopPostmaster({ pid: own.pid, dataDir: config.dataDir })
  }
}

/** The user at the terminal, for the audit. It proves nothing. */
export function who(): string {
  try {
    return `cli:${userInfo().username}`
  } catch {
    return 'cli'
  }
}
