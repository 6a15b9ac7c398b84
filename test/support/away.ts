import type { Test } from 'tap'
import { openDb, type Sql } from '../../src/db/pool.ts'
import type { Cluster } from '../../src/delivery/cluster.ts'
import { blackHole } from './blackhole.ts'
import { testDb } from './postgres.ts'

/** A pool whose way to PostgreSQL can be cut off. */
export async function throughBlackHole(
  t: Test
): Promise<{ hole: Awaited<ReturnType<typeof blackHole>>; sql: Sql; direct: Sql }> {
  const { url, sql: direct } = await testDb(t)
  const way = new URL(url)
  const hole = await blackHole(t, { host: way.hostname, port: Number(way.port) })
  way.port = String(hole.port)
  const sql = openDb(way.href, { max: 8, silenceMs: 20_000 })
  t.teardown(() => sql.end({ timeout: 1 }))
  return { hole, sql, direct }
}

/** As the process itself does once a second: looks until the database answers. */
export async function backAgain(around: Cluster): Promise<void> {
  while (around.isDatabaseAway()) await around.refresh().catch(() => {})
}
