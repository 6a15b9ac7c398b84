// Shared by the commands that use the database.
import { existsSync } from 'node:fs'
import { userInfo } from 'node:os'
import path from 'node:path'
import { checkClient, checkServer, DatabaseError, locatePrimary, openDb, type Sql } from '../db/pool.ts'
import { borrowEmbedded, type Borrowed } from '../embedded/borrow.ts'
import { embeddedSecret } from '../embedded/start.ts'
import { commandLine } from '../runtime/package.ts'
import { onStop } from '../runtime/stop.ts'
import type { Config } from '../service/config.ts'
import type { Actor } from '../domain/types.ts'

/** Without DATABASE_URL: the embedded database. It is started if needed, and then stopped again. */
export async function withDatabase(config: Config, act: (sql: Sql) => Promise<void>): Promise<void> {
  checkClient()
  if (config.databaseUrl === undefined && !hasEmbedded(config)) throw new DatabaseError(nothingAt(config))
  const own = config.databaseUrl === undefined ? await borrowUntilStop(config.dataDir) : undefined
  const url = own?.url ?? config.databaseUrl ?? ''
  try {
    await locatePrimary(url)
    const sql = openDb(url, { max: 1 })
    try {
      await checkServer(sql)
      await act(sql)
    } finally {
      await sql.end({ timeout: 5 })
    }
  } finally {
    await own?.leave()
  }
}

/** The embedded PostgreSQL for one command. It is also left at Ctrl-C: the process then exits with 130. */
export async function borrowUntilStop(dataDir: string): Promise<Borrowed> {
  const stop = new AbortController()
  const borrowing = borrowEmbedded(dataDir, {
    signal: stop.signal,
    onRecovering: ms =>
      console.error(`The embedded PostgreSQL recovers from a crash, for ${Math.round(ms / 1_000)} s so far.`)
  })
  const leave = async (): Promise<void> => await (await borrowing.catch(() => undefined))?.leave()
  let isStopping = false
  onStop(() => {
    if (isStopping) process.exit(130)
    isStopping = true
    stop.abort()
    void leave().finally(() => process.exit(130))
  }, ['SIGINT', 'SIGTERM', 'SIGHUP'])
  return await borrowing.catch((err: unknown) => {
    // The process exits.
    if (isStopping) return new Promise<never>(() => {})
    throw err
  })
}

/** Only `start` creates the embedded database: a command would create an empty one, while the service uses another. */
export const hasEmbedded = ({ dataDir }: Config): boolean =>
  existsSync(path.join(dataDir, 'postgres', 'PG_VERSION'))

/** SECRET, or the secret that `start` created. */
export function secretOf(config: Config): string {
  if (config.secret !== undefined) return config.secret
  if (!existsSync(path.join(config.dataDir, 'secret')))
    throw new DatabaseError(
      `There is no secret in ${path.resolve(config.dataDir)} yet: \`${commandLine('start')}\` makes it. For a service elsewhere, set DATA_DIR to its folder, or SECRET.`
    )
  return embeddedSecret(config.dataDir)
}

const nothingAt = ({ dataDir }: Config): string =>
  `There is no embedded database in ${path.resolve(dataDir)} yet: \`${commandLine('start')}\` makes it. For a service elsewhere, set DATA_DIR to its folder, or DATABASE_URL to its database.`

/** The user of the terminal, for the audit. This is not authentication. */
export function who(): Actor {
  try {
    return { name: `cli:${userInfo().username}` }
  } catch {
    return { name: 'cli' }
  }
}
