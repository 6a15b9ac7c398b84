// Counts by minute: written by every process, summed up for charts.
import { sql } from './drizzle.ts'
import { plainArray, textArray } from './arrays.ts'
import { ofCodes } from './page.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { eachCounter, latencyBounds, percentile, type Counter } from '../domain/counts.ts'
import type { Counts } from '../runtime/statistics.ts'

/** A process writes its own rows, with its whole counts of that minute: a repeated write changes nothing. */
export async function writeStatistics(db: Sql, node: string, counts: readonly Counts[]): Promise<void> {
  const column = (name: 'minute' | 'shortestMs' | 'longestMs' | Counter) =>
    plainArray(counts.map(one => one[name]))
  await db`
    insert into stat_minute (
      minute, node, downstream, message_code, accepted, attempts, failed_attempts, handled, direct, failed, exhausted, handled_ms,
      first_tries, first_delivered, failed_later, shortest_ms, longest_ms
    )
    select to_timestamp(minute / 1000), ${node}, downstream, message_code, accepted, attempts, failed_attempts, handled, direct,
      failed, exhausted, handled_ms::int[], first_tries, first_delivered, failed_later, shortest_ms, longest_ms
    from unnest(
      ${column('minute')}::float8[], ${textArray(counts.map(one => one.downstream))}::text[],
      ${textArray(counts.map(one => one.messageCode))}::text[], ${column('accepted')}::int[], ${column('attempts')}::int[],
      ${column('failedAttempts')}::int[], ${column('handled')}::int[], ${column('direct')}::int[], ${column('failed')}::int[],
      ${column('exhausted')}::int[], ${textArray(counts.map(one => plainArray(one.handledMs)))}::text[],
      ${column('firstTries')}::int[], ${column('firstDelivered')}::int[], ${column('failedLater')}::int[],
      ${column('shortestMs')}::float8[], ${column('longestMs')}::float8[]
    ) as c (
      minute, downstream, message_code, accepted, attempts, failed_attempts, handled, direct, failed, exhausted, handled_ms,
      first_tries, first_delivered, failed_later, shortest_ms, longest_ms
    )
    on conflict (minute, node, downstream, message_code) do update set
      accepted = excluded.accepted, attempts = excluded.attempts, failed_attempts = excluded.failed_attempts,
      handled = excluded.handled, direct = excluded.direct, failed = excluded.failed, exhausted = excluded.exhausted,
      handled_ms = excluded.handled_ms, first_tries = excluded.first_tries, first_delivered = excluded.first_delivered,
      failed_later = excluded.failed_later, shortest_ms = excluded.shortest_ms, longest_ms = excluded.longest_ms`
}

/**
 * Removes counts that are older than 30 days, at most two hours of them at once so that the statement ends in time, and expired sessions.
 */
export async function removeOldStatistics(db: Sql): Promise<void> {
  await db`
    delete from stat_minute where minute < least(
      now() - interval '30 days', (select min(minute) from stat_minute) + interval '2 hours')`
  await db`delete from session where expires_at < now()`
}

export interface StatsFilter {
  /** Of these messageCodes; null: of all. */
  messageCodes: readonly string[] | null
  messageCode?: string
  downstream?: string
  from: Date
  to: Date
  stepS: number
  /** A series for each downstream, instead of one of all together. */
  byDownstream: boolean
}

interface StatsPoint extends Record<Counter, number> {
  at: string
  p50Ms?: number
  p99Ms?: number
}

/** One sum for each bucket: an unnest of the arrays would make 23 rows of each. */
const buckets = sql.raw([...latencyBounds, 0].map((_, at) => `sum(handled_ms[${at + 1}])`).join(', '))

type StatsRow = Record<Counter, number> & {
  at: number
  downstream: string
  histogram: (number | null)[] | null
  shortestMs: number | null
  longestMs: number | null
  /** A row of an older version has latencies without their bounds. */
  isUnbounded: boolean
}

/** Series of points, each of `stepS` seconds, oldest first; minutes in which nothing happened are missing. */
export async function readStats(
  { db }: Reads,
  filter: StatsFilter
): Promise<{ downstream?: string; points: StatsPoint[]; total: Omit<StatsPoint, 'at'> }[]> {
  const { messageCodes, messageCode = null, downstream = null, from, to, stepS, byDownstream } = filter
  const rows = await db.execute<StatsRow & Record<string, unknown>>(sql`
    select extract(epoch from at)::float8 as at, name as downstream, sum(accepted)::int as accepted,
      sum(attempts)::int as attempts, sum(failed_attempts)::int as "failedAttempts", sum(handled)::int as handled,
      sum(direct)::int as direct, sum(failed)::int as failed, sum(exhausted)::int as exhausted,
      coalesce(sum(first_tries), 0)::int as "firstTries", coalesce(sum(first_delivered), 0)::int as "firstDelivered",
      sum(coalesce(failed_later, exhausted))::int as "failedLater",
      json_build_array(${buckets}) as histogram, min(shortest_ms) as "shortestMs", max(longest_ms) as "longestMs",
      bool_or(handled > 0 and first_tries is null) as "isUnbounded"
    from (
      select date_bin(${stepS}::int * interval '1 second', minute, 'epoch') as at,
        case when ${byDownstream}::boolean then downstream else '' end as name, s.*
      from stat_minute s
      where minute >= ${from.toISOString()}::timestamptz and minute < ${to.toISOString()}::timestamptz
        and ${ofCodes(messageCodes, 'message_code')}
        and (${messageCode}::text is null or message_code = ${messageCode})
        and (${downstream}::text is null or downstream = ${downstream})
        and not (${byDownstream}::boolean and downstream = '')
      -- Keeps the planner from sorting all minutes: it takes each for a point of its own.
      offset 0
    ) s group by at, name
    order by name, at`)
  const series = new Map<string, StatsRow[]>(byDownstream ? [] : [['', []]])
  for (const row of rows) series.set(row.downstream, [...(series.get(row.downstream) ?? []), row])
  return [...series].map(([name, of]) => ({
    ...(byDownstream ? { downstream: name } : {}),
    points: of.map(row => ({ at: new Date(row.at * 1000).toISOString(), ...measured([row]) })),
    total: measured(of)
  }))
}

function measured(rows: readonly StatsRow[]): Omit<StatsPoint, 'at'> {
  const histogram: number[] = []
  let bounds = { shortestMs: Infinity, longestMs: 0 }
  for (const row of rows) {
    for (const [at, n] of (row.histogram ?? []).entries())
      histogram[at] = (histogram[at] ?? 0) + Number(n ?? 0)
    bounds = {
      shortestMs: Math.min(bounds.shortestMs, row.isUnbounded ? 0 : (row.shortestMs ?? Infinity)),
      longestMs: Math.max(bounds.longestMs, row.isUnbounded ? Infinity : (row.longestMs ?? 0))
    }
  }
  const [p50, p99] = [percentile(histogram, 0.5, bounds), percentile(histogram, 0.99, bounds)]
  return {
    ...eachCounter(name => rows.reduce((total, row) => total + row[name], 0)),
    ...(p50 === null ? {} : { p50Ms: Math.round(p50 * 10) / 10 }),
    ...(p99 === null ? {} : { p99Ms: Math.round(p99 * 10) / 10 })
  }
}
