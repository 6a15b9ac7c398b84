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

/**
 * A pool that loses the answer of the next statement that moves a delivery, if `next` is set: its connection breaks after the commit.
 * `next` gets the statement, and may do something else in its place.
 */
export function losingPool(sql: Sql): {
  sql: Sql
  next: ((run: () => Promise<unknown>) => Promise<unknown>) | undefined
} {
  const pool: ReturnType<typeof losingPool> = {
    next: undefined,
    sql: intercepted(sql, (text, _, run) => {
      const { next } = pool
      if (!next || !text.includes('update delivery d set')) return undefined
      pool.next = undefined
      return next(run).then(() => {
        throw Object.assign(new Error('write CONNECTION_CLOSED'), { code: 'CONNECTION_CLOSED' })
      })
    })
  }
  return pool
}
