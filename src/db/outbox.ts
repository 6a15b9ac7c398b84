// Rows that producers wrote in their own transactions, before they become tasks. Rejected rows: rejected.ts.
import type postgres from 'postgres'
import { plainArray, textArray } from './arrays.ts'
import { actor } from './audit.ts'
import { textBytes } from './json-size.ts'
import type { Sql } from './pool.ts'
import type { Actor } from '../domain/types.ts'

/** A row of the outbox. A text that is longer than a task may have is cut. */
export interface OutboxRow {
  id: number
  taskNo: string | null
  messageCode: string | null
  sceneType: string | null
  /** Also null if it is larger than a task may have. */
  messageBody: string | null
  bodyBytes: number
  /** RFC 3339, rounded up to a millisecond; or the text of PostgreSQL for a time that has no such form. */
  deliverStartTime: string | null
  delayMs: number | null
  deliverBefore: string | null
  orderingKey: string | null
  needCallback: boolean | null
  retryTimes: number | null
  bizType: string | null
  bizKey: string | null
  /** JSON, like `members`. Also null if it is larger than a task may have. */
  extend: string | null
  members: string | null
  /** The length of their texts; of a large one an estimate, which builds no text. null without any. */
  extendBytes: number | null
  membersBytes: number | null
  traceparent: string | null
  createdAt: Date
  createdBy: string
  /** The shard of its ordering key. null without one. */
  shard: number | null
}

export const shardCount = 16
/** A body of 256 KiB, and white space around it. */
const mostBodyBytes = 294_912
const mostMoreBytes = 65_536
const atOnce = 200
/** Bodies, extends and members read at once. One row is read whatever its size. */
const bytesAtOnce = 4_194_304

export interface OutboxRead {
  rows: OutboxRow[]
  /** There are more rows. */
  isFull: boolean
  /** Every transaction below this id has ended: its rows are visible, or rolled back. */
  endedBelow: number
  /** Every transaction that has begun to write is below this id. */
  begunBelow: number
}

/** What a read leaves out. */
export interface OutboxWithout {
  /** Of rows with a key. */
  shards: readonly number[]
  /** The messageCodes of rows without a key. */
  codes: readonly string[]
}

/** The shard of a key. A key longer than a task may have is refused, and reading all of it could take a second. */
const shardOf = (sql: Sql) => sql`hashtext(left(ordering_key, 300)) & 15`

const isReadable = (sql: Sql, { shards, codes }: OutboxWithout) => sql`case
          when ordering_key is null then (message_code = any(${textArray(codes)}::text[])) is not true
          else not (${shardOf(sql)}) = any(${plainArray(shards)}::int[]) end`

/** A look at the oldest rows. */
export interface OutboxLook {
  after: number
  without: OutboxWithout
}

const looked = (sql: Sql, { after, without }: OutboxLook) => sql`
  id > ${after} and ${isReadable(sql, without)}
  order by id
  limit ${atOnce}`

/** The oldest rows after `after`, without those of `without`. They stay in the table, so a crash loses nothing. */
export async function readOutbox(sql: Sql, look: OutboxLook): Promise<OutboxRead> {
  const rows = await sql<(OutboxRow & { upto: number; endedBelow: number; begunBelow: number })[]>`
    select s.*, ${rowColumns(sql)}, o.upto
    from (
      select pg_snapshot_xmin(pg_current_snapshot())::text::bigint as "endedBelow",
        pg_snapshot_xmax(pg_current_snapshot())::text::bigint as "begunBelow"
    ) s left join (${measured(sql, looked(sql, look))}) o on o.upto - o.size < ${bytesAtOnce}
    order by o.id`
  const [first] = rows
  if (!first) throw new Error('PostgreSQL returned no snapshot')
  const found = first.id === null ? [] : rows
  return {
    rows: found,
    isFull: found.length === atOnce || (found.at(-1)?.upto ?? 0) >= bytesAtOnce,
    endedBelow: first.endedBelow,
    begunBelow: first.begunBelow
  }
}

/** The rows that `readOutbox` would look at, and of these only what no row can make large. */
export const findOutbox = (sql: Sql, look: OutboxLook): Promise<Pick<OutboxRow, 'id' | 'shard'>[]> => sql<
  Pick<OutboxRow, 'id' | 'shard'>[]
>`
  select id, ${shardOf(sql)} as shard from outbox where ${looked(sql, look)}`

/** These rows, as `readOutbox` reads them. */
export const readOutboxRows = (sql: Sql, ids: readonly number[]): Promise<OutboxRow[]> => sql<OutboxRow[]>`
  select ${rowColumns(sql)}
  from (${measured(sql, sql`id = any(${plainArray(ids)}::bigint[]) order by id`)}) o
  where o.upto - o.size < ${bytesAtOnce}
  order by o.id`

const rowColumns = (sql: Sql) => sql`
      o.id, left(o.task_no, 200) as "taskNo", left(o.message_code, 200) as "messageCode",
      left(o.scene_type, 200) as "sceneType", o.body_bytes as "bodyBytes",
      case when o.body_bytes <= ${mostBodyBytes} then o.message_body end as "messageBody",
      case when o.deliver_start_time between '1970-01-01Z' and '9999-12-31Z' then to_char(
        (o.deliver_start_time + interval '999 us') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
      ) else o.deliver_start_time::text end as "deliverStartTime",
      ceil(extract(epoch from o.delay) * 1000)::float8 as "delayMs",
      case when o.deliver_before between '1970-01-01Z' and '9999-12-31Z' then to_char(
        (o.deliver_before + interval '999 us') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
      ) else o.deliver_before::text end as "deliverBefore",
      left(o.ordering_key, 300) as "orderingKey", o.need_callback as "needCallback", o.retry_times as "retryTimes",
      left(o.biz_type, 300) as "bizType", left(o.biz_key, 300) as "bizKey",
      o.extend_bytes as "extendBytes", o.members_bytes as "membersBytes",
      case when o.extend_bytes <= ${mostMoreBytes} then o.extend::text end as extend,
      case when o.members_bytes <= ${mostMoreBytes} then o.members::text end as members,
      left(o.traceparent, 100) as traceparent, o.created_at as "createdAt", o.created_by as "createdBy", o.shard`

/** Rows of the outbox, `which`, with their sizes. `upto`: the sum of the sizes up to the row. */
const measured = (sql: Sql, which: postgres.Fragment) => sql`
      select *, sum(size) over (order by id)::float8 as upto
      from (
        select *, body_bytes + case when extend_bytes <= ${mostMoreBytes} then extend_bytes else 0 end
          + case when members_bytes <= ${mostMoreBytes} then members_bytes else 0 end as size
        from (
          select *, coalesce(octet_length(message_body), 0) as body_bytes, ${shardOf(sql)} as shard,
            ${textBytes(sql, 'extend')} as extend_bytes, ${textBytes(sql, 'members')} as members_bytes
          from outbox where ${which}
        ) read
      ) sized`

/** Whether there is a row after `after`. The cheapest query here: an index answers it, if nothing is left out. */
export async function hasOutbox(sql: Sql, after: number, without?: OutboxWithout): Promise<boolean> {
  const rows = without
    ? await sql`select from outbox where id > ${after} and ${isReadable(sql, without)} limit 1`
    : await sql`select from outbox where id > ${after} limit 1`
  return rows.count > 0
}

/** Removes rows whose task exists already, with the same content. Returns how many were still there. */
export async function removeFromOutbox(sql: Sql, ids: readonly number[]): Promise<number> {
  const gone = await sql`delete from outbox where id = any(${plainArray(ids)}::bigint[])`
  return gone.count
}

/** The columns that the producer's transaction wrote: those that outbox and outbox_rejected have in common. */
export const enqueuedColumns = (sql: Sql) => sql`
  task_no, message_code, scene_type, message_body, deliver_start_time, delay, deliver_before, ordering_key,
  need_callback, retry_times, biz_type, biz_key, extend, members, traceparent, created_at, created_by`

/** `id` is a UUID of version 7: the lists of alarms are sorted by it. */
interface Rejection {
  rowId: number
  id: string
  problem: object
}

/** Moves rows to outbox_rejected and raises their alarms, in one statement. Returns how many were still there. */
export async function rejectFromOutbox(sql: Sql, rejections: readonly Rejection[]): Promise<number> {
  const moved = await sql`
    with gone as (
      delete from outbox where id = any(${plainArray(rejections.map(one => one.rowId))}::bigint[]) returning *
    ), kept as (
      insert into outbox_rejected (id, ${enqueuedColumns(sql)}, problem)
      select r.id, ${enqueuedColumns(sql)}, r.problem
      from gone join unnest(
        ${plainArray(rejections.map(one => one.rowId))}::bigint[], ${plainArray(rejections.map(one => one.id))}::uuid[],
        ${textArray(rejections.map(one => JSON.stringify(one.problem)))}::jsonb[]
      ) as r (row_id, id, problem) on r.row_id = gone.id
      returning id
    )
    insert into alarm (task_id, downstream, attempt, kind) select id, '', 0, 'REJECTED' from kept`
  return moved.count
}

/** Takes or keeps these shards for `leaseMs`. Returns those that are ours now; the others belong to another process. */
export async function leaseShards(
  sql: Sql,
  owner: string,
  shards: readonly number[],
  leaseMs: number
): Promise<number[]> {
  const rows = await sql<{ shard: number }[]>`
    insert into outbox_lease (shard, owner, until)
    select shard, ${owner}, now() + ${leaseMs} * interval '1 ms'
    from unnest(${plainArray(shards)}::int[]) as s (shard)
    order by shard
    on conflict (shard) do update set owner = excluded.owner, until = excluded.until
      where outbox_lease.owner = excluded.owner or outbox_lease.until <= now()
    returning shard`
  return rows.map(row => row.shard)
}

/** Releases these shards of it. */
export async function leaveShards(sql: Sql, owner: string, shards: readonly number[]): Promise<void> {
  await sql`delete from outbox_lease where owner = ${owner} and shard = any(${plainArray(shards)}::int[])`
}

/** Releases all shards of it. */
export async function releaseShards(sql: Sql, owner: string): Promise<void> {
  await sql`delete from outbox_lease where owner = ${owner}`
}

export interface OutboxState {
  /** Counted up to 100,000. */
  waiting: number
  /** Age of the oldest row; 0 without any. */
  oldestMs: number
  rejected: number
}

export async function readOutboxState(sql: Sql): Promise<OutboxState> {
  const [row] = await sql<[OutboxState]>`
    select (select count(*) from (select from outbox limit 100000) o)::int as waiting,
      coalesce((
        select extract(epoch from clock_timestamp() - created_at) * 1000 from outbox order by id limit 1
      ), 0)::float8 as "oldestMs",
      (select count(*) from (select from outbox_rejected limit 100000) r)::int as rejected`
  return row
}

/** Lets a role call the functions of ackbox_api, and nothing else. False: there is no such role. */
export async function grantOutbox(sql: Sql, { role, who }: { role: string; who: Actor }): Promise<boolean> {
  const [found] = await sql<{ statement: string }[]>`
    select format(
      'grant usage on schema ackbox_api to %1$I; grant execute on all functions in schema ackbox_api to %1$I', rolname
    ) as statement
    from pg_roles where rolname = ${role}`
  if (!found) return false
  await sql`insert into audit (who, key_id, what, target) values (${actor(sql, who)}, 'outbox.granted', ${role})`
  await sql.unsafe(found.statement)
  return true
}
