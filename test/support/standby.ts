import { chownSync, rmSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Test } from 'tap'
import { migrate } from '../../src/db/migrate.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { runPostmaster, stopPostmaster, urlOf, type Postmaster } from '../../src/embedded/postmaster.ts'
import { copy, dataFolder } from './cluster.ts'
import { isRunning } from './presence.ts'
import { folder } from './service.ts'
import { until } from './until.ts'

export interface Pair {
  /** One URL with both hosts. The standby is first, so that the first host is not the primary. */
  url: string
  /** Kills the primary, or makes it read-only. */
  losePrimary(how: 'killed' | 'read-only'): Promise<void>
  /** Promotes the standby: it accepts writes from now on. Resolves to a client for it. */
  promote(): Promise<Sql>
}

/** A migrated primary whose commits wait for its synchronous standby: the standby has every confirmed commit. */
export async function primaryAndStandby(t: Test): Promise<Pair> {
  const primaryDir = await dataFolder(t)
  const standbyDir = folder(t)
  const settings = { fsync: 'off', max_connections: '100' }
  const ends = (postmaster: Postmaster, dataDir: string) =>
    t.teardown(() => stopPostmaster({ pid: postmaster.pid, dataDir }))

  const first = await runPostmaster({ dataDir: primaryDir, settings })
  await migrate(urlOf(first))
  await stopPostmaster({ pid: first.pid, dataDir: primaryDir })
  copy(primaryDir, standbyDir)
  rmSync(path.join(standbyDir, 'port'), { force: true })
  const signal = path.join(standbyDir, 'postgres/standby.signal')
  writeFileSync(signal, '')
  const { uid, gid } = statSync(path.join(standbyDir, 'postgres/PG_VERSION'))
  chownSync(signal, uid, gid)

  const primary = await runPostmaster({
    dataDir: primaryDir,
    settings: { ...settings, synchronous_standby_names: 'standby' }
  })
  ends(primary, primaryDir)
  const standby = await runPostmaster({
    dataDir: standbyDir,
    settings: {
      ...settings,
      primary_conninfo: `host=127.0.0.1 port=${primary.port} user=postgres password=${primary.password} application_name=standby`
    }
  })
  ends(standby, standbyDir)
  const sql = openDb(urlOf(primary), { max: 1, applicationName: 'test' })
  await until('the standby is synchronous', async () => {
    const [row] = await sql`select sync_state from pg_stat_replication where application_name = 'standby'`
    return row?.['sync_state'] === 'sync'
  })
  t.teardown(() => sql.end({ timeout: 1 }))
  return {
    url: `postgres://postgres:${primary.password}@127.0.0.1:${standby.port},127.0.0.1:${primary.port}/postgres?target_session_attrs=read-write`,
    async losePrimary(how) {
      if (how === 'read-only') {
        await sql`alter system set default_transaction_read_only = on`
        await sql`select pg_reload_conf()`
        return
      }
      process.kill(primary.pid, 'SIGKILL')
      await until('the primary is gone', () => !isRunning(primary.pid))
    },
    async promote() {
      const client = openDb(urlOf(standby), { max: 2, applicationName: 'test' })
      t.teardown(() => client.end({ timeout: 1 }))
      await client`select pg_promote(true, 300)`
      return client
    }
  }
}
