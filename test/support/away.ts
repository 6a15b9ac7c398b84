import type { Test } from 'tap'
import { openDb, type Sql } from '../../src/db/pool.ts'
import type { Cluster } from '../../src/delivery/cluster.ts'
import { blackHole } from './blackhole.ts'
import { testDb } from './postgres.ts'

/** A pool whose connections to PostgreSQL can be cut off. `direct` is a pool without the proxy. */
export async function throughBlackHole(
  t: Test
): Promise<{ hole: Awaited<ReturnType<typeof blackHole>>; sql: Sql; direct: Sql }> {
  const { url, sql: direct } = await testDb(t)
  const proxied = new URL(url)
  const hole = await blackHole(t, { host: proxied.hostname, port: Number(proxied.port) })
  proxied.port = String(hole.port)
  const sql = openDb(proxied.href, { max: 8, silenceMs: 20_000 })
  t.teardown(() => sql.end({ timeout: 1 }))
  return { hole, sql, direct }
}

/** Refreshes until the database answers, as the process itself does once a second. */
export async function backAgain(around: Cluster): Promise<void> {
  while (around.isDatabaseAway()) await around.refresh().catch(() => {})
}

/** A pool whose statements `by` may answer in its own way, also with `run`. Undefined: the statement runs as it is. */
export const intercepted = (
  sql: Sql,
  by: (text: string, values: readonly unknown[], run: () => Promise<unknown>) => Promise<unknown> | undefined
): Sql =>
  new Proxy(sql, {
    apply(target, self, args: [TemplateStringsArray, ...unknown[]]) {
      const [strings, ...values] = args
      const run = (): unknown => Reflect.apply(target, self, args)
      // A list or a name is no template.
      if (!Array.isArray(strings) || !('raw' in strings)) return run()
      return by(strings.join('?'), values, async () => await run()) ?? run()
    }
  })
