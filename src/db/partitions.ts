// `attempt` and `receipt` by days: a task's id holds its time, and the rows of a day are dropped as one file.
import { lowestUuid, timeOf, uuidAt } from '../domain/ids.ts'
import { plainArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import { sleep } from '../runtime/repeat.ts'
import { codeOf } from '../runtime/text-of.ts'

export const partitioned = ['attempt', 'receipt'] as const
type Partitioned = (typeof partitioned)[number]

/** The days after today whose partitions are made in advance. */
export const daysAhead = 8
export const dayMs = 86_400_000
/** If the search for tasks takes longer, it must not run under the lock, where all others would wait: vacuum must run first. */
const quickMs = 50

export interface Partition {
  parent: Partitioned
  name: string
  /** The ids in it: from `low` on, and lower than `high`. `low` null: the first partition, without a lower bound. */
  low: string | null
  high: string
}

/** All partitions of both tables, the oldest first. */
export async function listPartitions(sql: Sql): Promise<Partition[]> {
  return await sql<Partition[]>`
    select parent, name, low::text, high::text
    from unnest(${plainArray(partitioned)}::text[]) as p (parent) cross join lateral partitions_of(parent)
    order by high, parent`
}

const holds = ({ low, high }: Partition, id: string): boolean => (low === null || low <= id) && id < high

/** The lowest id of each stretch without a partition between two times in ms. A stretch ends at midnight UTC. */
export function gapsOf(there: readonly Partition[], parent: Partitioned, from: number, to: number): string[] {
  const mine = there.filter(one => one.parent === parent)
  const [gaps, end] = [[] as string[], uuidAt(new Date(to))]
  for (let id = uuidAt(new Date(from)); id < end;) {
    const holder = mine.find(one => holds(one, id))
    if (holder) id = holder.high
    else {
      gaps.push(id)
      const midnight = uuidAt(new Date((Math.floor(timeOf(id).getTime() / dayMs) + 1) * dayMs))
      id = mine.reduce((next, { low }) => (low !== null && low > id && low < next ? low : next), midnight)
    }
  }
  return gaps
}

/** Makes the missing partitions of today and the next days; waits for no lock that others hold for long. */
export async function makePartitions(sql: Sql, there: readonly Partition[], now = Date.now()): Promise<void> {
  const today = Math.floor(now / dayMs) * dayMs
  for (const parent of partitioned)
    for (const id of gapsOf(there, parent, today, today + (daysAhead + 1) * dayMs))
      await sql`select make_partition(${parent}, ${id}::uuid)`
}

async function makeFor(sql: Sql, ids: Iterable<string>): Promise<void> {
  let there = await listPartitions(sql)
  for (const id of ids)
    for (const parent of partitioned) {
      if (there.some(one => one.parent === parent && holds(one, id))) continue
      await sql`select make_partition(${parent}, ${id}::uuid)`
      there = await listPartitions(sql)
    }
}

/**
 * Writes rows of these tasks. If a partition is missing, because no dispatcher ran for long, or a clock is wrong by days, it is made, and
 * the rows are written then: an outcome exists nowhere else.
 */
export async function withPartitions<T>(
  sql: Sql,
  taskIds: () => Iterable<string>,
  write: () => Promise<T>
): Promise<T> {
  try {
    return await write()
  } catch (err) {
    if (!isWithoutPartition(err)) throw err
    await makeFor(sql, taskIds())
    return await write()
  }
}

const isWithoutPartition = (err: unknown): boolean => {
  const { code, table_name: table, constraint_name: constraint } = err as { [field: string]: unknown }
  // A check that fails has a name; the words of the message depend on the server's language.
  return code === '23514' && constraint === undefined && partitioned.some(name => name === table)
}

/** The lowest id whose attempts and receipts are not removed row by row: they are dropped with their day. */
export function droppedFrom(partitions: readonly Partition[], oldest: string): string {
  const first = partitions.filter(({ low, high }) => low === null && high > oldest)
  return first.reduce((highest, { high }) => (high > highest ? high : highest), uuidAt(new Date(0)))
}

/** The lowest id of a task that is younger than `days`, by the database's clock. */
export async function oldestYoung(sql: Sql, days: number): Promise<string> {
  const [row] = await sql<
    [{ id: string }]
  >`select lowest_id(now() - ${days}::int * interval '1 day')::text as id`
  return row.id
}

export interface LockHolder {
  pid: number
  application: string
  /** Null: a session of another user, whose times this role may not see. */
  seconds: number | null
}

/** A transaction that has a partition open for longer keeps it from being dropped. */
const openMs = 1_000

/** Transactions that have read or written this table and are older than a second: a partition cannot be dropped before they end. */
export async function lockHoldersOf(
  sql: Sql,
  partition: Pick<Partition, 'parent' | 'name'>
): Promise<LockHolder[]> {
  const seen = await openTransactions(sql, partition)
  let old = seen.filter(({ seconds }) => seconds !== null)
  if (old.length < seen.length) {
    await sleep(openMs)
    const still = new Set((await openTransactions(sql, partition)).map(one => one.transaction))
    old = seen.filter(({ seconds, transaction }) => seconds !== null || still.has(transaction))
  }
  return old.map(({ pid, application, seconds }) => ({ pid, application, seconds }))
}

/** Those older than a second, and those whose age this role may not see: without pg_read_all_stats, all of other users. */
async function openTransactions(sql: Sql, { parent, name }: Pick<Partition, 'parent' | 'name'>) {
  return await sql<(LockHolder & { transaction: string })[]>`
    select distinct a.pid, a.application_name as application, extract(epoch from now() - a.xact_start)::int as seconds,
      l.virtualtransaction as transaction
    from pg_locks l join pg_stat_activity a on a.pid = l.pid
    where l.relation in (to_regclass(${parent}), to_regclass(${name})) and l.granted
      and (a.xact_start is null or a.xact_start < now() - ${openMs}::int * interval '1 ms')
      and l.database = (select oid from pg_database where datname = current_database())`
}

/** The result for a day that is older than retention keeps. `kept`: it still has tasks, and rows without a task were removed. */
type Tended = 'dropped' | 'kept' | 'later' | { blockedBy: LockHolder[] }

export async function tendPartition(
  sql: Sql,
  partition: Partition,
  limit: number,
  signal?: AbortSignal
): Promise<Tended> {
  try {
    return await tend(sql, partition, limit, signal)
  } catch (err) {
    // Another transaction held a lock for a moment, or another dispatcher was faster.
    if (['55P03', '42P01'].includes(codeOf(err) ?? '')) return 'later'
    throw err
  }
}

async function tend(sql: Sql, partition: Partition, limit: number, signal?: AbortSignal): Promise<Tended> {
  const { parent, name, low, high } = partition
  // By the server's clock: the way to it, and the wait for a connection, are not under the lock.
  const [look] = await sql<[{ has: boolean; ms: number }]>`
    with look as materialized (
      select exists (
        select from task where id >= ${low ?? lowestUuid}::uuid and id < ${high}::uuid
      ) as has
    )
    select has, (extract(epoch from clock_timestamp() - statement_timestamp()) * 1000)::float8 as ms from look`
  if (look.has) {
    for (let after: string | null = null; ;) {
      after = await removeOrphans(sql, partition, after, limit)
      if (after === null) return 'kept'
      if (signal?.aborted) return 'later'
    }
  }
  if (look.ms > quickMs) return 'later'
  const blockedBy = await lockHoldersOf(sql, partition)
  if (blockedBy.length > 0) return { blockedBy }
  // drop_partition looks again under its lock: a task of that day may have come, by a wrong clock or from the archive.
  const [done] = await sql<[{ dropped: boolean }]>`select drop_partition(${parent}, ${name}) as dropped`
  return done.dropped ? 'dropped' : 'later'
}

/**
 * Removes rows whose task is gone, after `after`. Returns where to continue; null: the end. By the name of the table: a process may
 * have no right on its partitions.
 */
async function removeOrphans(
  sql: Sql,
  { parent, low, high }: Partition,
  after: string | null,
  limit: number
): Promise<string | null> {
  const [from, table] = [low ?? lowestUuid, sql(parent)]
  const [row] = await sql<[{ looked: number; last: string | null }]>`
    with looked as materialized (
      select distinct task_id from ${table}
      where task_id >= ${from}::uuid and task_id < ${high}::uuid and task_id > ${after ?? lowestUuid}::uuid
      order by task_id limit ${limit}
    ), gone as (
      delete from ${table} r using looked l
      where r.task_id = l.task_id and r.task_id >= ${from}::uuid and r.task_id < ${high}::uuid
        and not exists (select from task where id = l.task_id)
    )
    select count(*)::int as looked, (select task_id::text from looked order by task_id desc limit 1) as last from looked`
  return row.looked < limit ? null : row.last
}
