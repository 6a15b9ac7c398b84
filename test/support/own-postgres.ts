import type { Test } from 'tap'
import { migrate } from '../../src/db/migrate.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../../src/embedded/postmaster.ts'
import { isRunning } from './presence.ts'
import { dataFolder } from './cluster.ts'
import { until } from './until.ts'

export interface OwnPostgres {
  url: string
  sql: Sql
  /** SIGQUIT: an immediate stop. SIGKILL: as a power loss, except that the page cache survives. */
  kill(signal: 'SIGQUIT' | 'SIGKILL'): Promise<void>
  /** Starts it again on its port. */
  start(): Promise<void>
}

/** A migrated PostgreSQL that no other test uses, for tests that stop it, fill its disk or change its settings. */
export async function ownPostgres(
  t: Test,
  at?: string,
  more: Record<string, string> = {}
): Promise<OwnPostgres> {
  const dataDir = at ?? (await dataFolder(t))
  const settings = { fsync: 'off', max_connections: '100', max_wal_size: '64MB', ...more }
  let postmaster = await runPostmaster({ dataDir, settings })
  const { port } = postmaster
  const url = urlOf(postmaster)
  t.teardown(() => stopPostmaster({ pid: postmaster.pid, dataDir }))
  await migrate(url)
  const sql = openDb(url, { max: 3, applicationName: 'ackbox test' })
  t.teardown(() => sql.end({ timeout: 1 }))
  return {
    url,
    sql,
    async kill(signal) {
      process.kill(postmaster.pid, signal)
      await until('PostgreSQL is gone', () => !isRunning(postmaster.pid))
    },
    async start() {
      postmaster = await runPostmaster({ dataDir, settings, port })
    }
  }
}
