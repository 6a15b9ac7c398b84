// FAILED deliveries in groups of the same fingerprint: from the append-only table of failures, never from all deliveries.
import { sql, type SQL } from './drizzle.ts'
import { isAnyOf, plainArray, textArray } from './arrays.ts'
import { ofCodes } from './page.ts'
import { actor } from './audit.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import type { Actor, Reason } from '../domain/types.ts'

export interface FailureFilter {
  /** Of these messageCodes; null: of all. */
  messageCodes: readonly string[] | null
  messageCode?: string
  downstream?: string
  fingerprint?: string
  from: Date
  to: Date
  archived: boolean
  /** At most so many groups. */
  limit: number
}

interface FailureGroup {
  fingerprint: string
  downstream: string
  reason: Reason
  status?: number
  line?: string
  /** Deliveries that are FAILED with it at this moment. */
  failed: number
  /** Times that it happened. */
  failures: number
  /** Times that it happened to a delivery that had FAILED before, and was redelivered. */
  again: number
  firstAt: string
  lastAt: string
  /** How often in each 24th of the time from `from` to `to`. */
  histogram: number[]
  example: { taskNo: string; messageCode: string; answer?: string }
  archived?: { note: string; at: string; by: string }
  /** It also has failures of other messageCodes. */
  isShared: boolean
}

/** The most failures that are grouped, the newest first. */
const mostLooked = 10_000
/** The most failures among which those of the filter are searched. Grouping one costs as much as ten of these. */
const mostSearched = 100_000
const bucketCount = 24
/** The most failures of a group that are read to find those of other messageCodes. */
const mostOfGroup = 1_000

interface PartRow extends Record<string, unknown> {
  fingerprint: string
  downstream: string
  reason: Reason
  status: number | null
  line: string | null
  bucket: number
  failed: number
  failures: number
  again: number
  first: number
  last: number
  last_id: string
}

/** The row of a look that found nothing. */
interface NoPart extends Record<string, unknown> {
  fingerprint: null
}

/** Groups, those with the most FAILED deliveries first. `partial`: there are older failures that were not read, or more groups. */
export async function listFailures(
  { db }: Reads,
  filter: FailureFilter
): Promise<{ failures: FailureGroup[]; partial?: true }> {
  const { from, to, messageCode = null, downstream = null, fingerprint } = filter
  const [first, last] = [from.getTime() / 1000, to.getTime() / 1000]
  const newest = (columns: SQL, more: SQL) => sql`
    select ${columns} from failure
    where created_at >= ${from.toISOString()}::timestamptz and created_at < ${to.toISOString()}::timestamptz
      ${fingerprint === undefined ? sql`` : sql`and fingerprint = ${fingerprint}`}
    order by created_at desc ${more}`
  const rows = await db.execute<(PartRow | NoPart) & { is_partial: boolean }>(sql`
    with looked as materialized (
      select * from (${newest(sql`*`, sql`limit ${mostSearched}`)}) l
      where ${ofCodes(filter.messageCodes, 'l.message_code')}
        and (${messageCode}::text is null or l.message_code = ${messageCode})
        and (${downstream}::text is null or l.downstream = ${downstream})
      order by l.created_at desc
      limit ${mostLooked}
    ), known as (
      select l.*, width_bucket(extract(epoch from l.created_at)::float8, ${first}::float8, ${last}::float8, ${bucketCount}) as bucket,
        -- Answered by the index of FAILED deliveries, which is small beside their rows.
        l.id = own.last and exists (
          select from delivery d where d.status = 2 and d.task_id = l.task_id and d.downstream = l.downstream
        ) as is_failed,
        l.id > own.first as is_again
      from looked l cross join lateral (
        select min(id) as first, max(id) as last from (
          -- offset 0: one look-up for both.
          select id from failure where task_id = l.task_id and downstream = l.downstream offset 0
        ) f
      ) own
    ), part as (
      select fingerprint, min(downstream) as downstream, min(reason) as reason, min(status_code) as status, min(line) as line,
        bucket, count(*) filter (where is_failed)::int as failed, count(*)::int as failures,
        count(*) filter (where is_again)::int as again, extract(epoch from min(created_at))::float8 as first,
        extract(epoch from max(created_at))::float8 as last, max(id)::text as last_id
      from known group by fingerprint, bucket
    )
    select part.*, look.is_partial from (
      select count(*) = ${mostLooked}
        or exists (${newest(sql`id`, sql`offset ${mostSearched} limit 1`)}) as is_partial
      from looked
    ) look left join part on true`)
  const parts = rows.filter(row => row.fingerprint !== null)
  const byPrint = new Map<string, PartRow[]>()
  for (const part of parts) byPrint.set(part.fingerprint, [...(byPrint.get(part.fingerprint) ?? []), part])
  const archived = await readArchived({ db }, [...byPrint.keys()])
  const groups = [...byPrint.values()].map(grouped).filter(group => {
    const note = archived.get(group.fingerprint)
    const isHidden = note !== undefined && Number(group.lastId) <= note.last
    if (isHidden) group.archived = { note: note.note, at: note.at, by: note.by }
    return isHidden === filter.archived
  })
  groups.sort((a, b) => b.failed - a.failed || (a.lastAt < b.lastAt ? 1 : -1))
  const page = groups.slice(0, filter.limit)
  const examples = await readExamples(
    { db },
    page.map(one => one.lastId)
  )
  const shared = await readShared(
    { db },
    page.map(one => one.fingerprint),
    filter.messageCodes
  )
  return {
    failures: page.map(({ lastId, ...group }) => ({
      ...group,
      isShared: shared.has(group.fingerprint),
      example: examples.get(lastId) ?? { taskNo: '', messageCode: '' }
    })),
    ...(rows[0]?.is_partial || groups.length > page.length ? { partial: true } : {})
  }
}

type Grouped = Omit<FailureGroup, 'example' | 'isShared'> & { lastId: string }

function grouped(parts: readonly PartRow[]): Grouped {
  const [first] = parts
  if (!first) throw new Error('a group without rows')
  const sum = (name: 'failed' | 'failures' | 'again') => parts.reduce((total, part) => total + part[name], 0)
  const histogram = Array.from({ length: bucketCount }, () => 0)
  for (const part of parts) {
    const at = Math.min(bucketCount, Math.max(1, part.bucket)) - 1
    histogram[at] = (histogram[at] ?? 0) + part.failures
  }
  const time = (seconds: number) => new Date(seconds * 1000).toISOString()
  return {
    fingerprint: first.fingerprint,
    downstream: first.downstream,
    reason: first.reason,
    ...(first.status === null ? {} : { status: first.status }),
    ...(first.line === null ? {} : { line: first.line }),
    failed: sum('failed'),
    failures: sum('failures'),
    again: sum('again'),
    firstAt: time(Math.min(...parts.map(part => part.first))),
    lastAt: time(Math.max(...parts.map(part => part.last))),
    histogram,
    lastId: parts.reduce((last, part) => (Number(part.last_id) > Number(last) ? part.last_id : last), '0')
  }
}

async function readArchived({ db }: Pick<Reads, 'db'>, prints: readonly string[]) {
  const rows = await db.execute<{
    fingerprint: string
    note: string
    at: number
    by: string
    last: string
  }>(sql`
    select fingerprint, note, extract(epoch from archived_at)::float8 as at, archived_by as by, last_failure_id::text as last
    from failure_archive where fingerprint = any(${textArray(prints)}::text[])`)
  return new Map(
    rows.map(row => [
      row.fingerprint,
      { note: row.note, by: row.by, at: new Date(row.at * 1000).toISOString(), last: Number(row.last) }
    ])
  )
}

/** The groups with failures of messageCodes other than these, among the newest of each. */
async function readShared(
  { db }: Pick<Reads, 'db'>,
  prints: readonly string[],
  codes: readonly string[] | null
): Promise<Set<string>> {
  if (codes === null || prints.length === 0) return new Set()
  const rows = await db.execute<{ fingerprint: string }>(sql`
    select p.fingerprint from unnest(${textArray(prints)}::text[]) as p (fingerprint)
    where exists (
      select from (
        select message_code from failure where fingerprint = p.fingerprint order by id desc limit ${mostOfGroup}
      ) newest
      where message_code <> all(${textArray(codes)}::text[])
    )`)
  return new Set(rows.map(row => row.fingerprint))
}

/** The newest failure of each group: its task, and the answer as it came. */
async function readExamples({ db }: Pick<Reads, 'db'>, ids: string[]) {
  const rows = await db.execute<{
    id: string
    task_no: string | null
    message_code: string
    answer: string | null
  }>(sql`
    select f.id::text as id, t.task_no, f.message_code, encode(substring(a.answer for 2000), 'base64') as answer
    from failure f left join task t on t.id = f.task_id
      left join attempt a on a.task_id = f.task_id and a.downstream = f.downstream and a.attempt = f.attempt
    where f.id = any(${plainArray(ids)}::bigint[])`)
  return new Map(
    rows.map(row => [
      row.id,
      {
        taskNo: row.task_no ?? '',
        messageCode: row.message_code,
        ...(row.answer === null ? {} : { answer: Buffer.from(row.answer, 'base64').toString('utf8') })
      }
    ])
  )
}

/** Hides a group until it fails again. False: the caller may change no group with this fingerprint. */
export async function archiveFailure(
  db: Sql,
  request: { fingerprint: string; note: string; who: Actor; messageCodes: readonly string[] | null }
): Promise<boolean> {
  const rows = await db`
    with last as (
      select max(id) as id from failure where fingerprint = ${request.fingerprint}
      -- Of a group that others have too, a key of some messageCodes may hide nothing.
      having bool_and(${isAnyOf(db, request.messageCodes, 'message_code')})
    ), kept as (
      insert into failure_archive (fingerprint, note, archived_by, last_failure_id)
      select ${request.fingerprint}, ${request.note}, ${request.who.name}, id from last where id is not null
      on conflict (fingerprint) do update set note = excluded.note, archived_by = excluded.archived_by,
        archived_at = now(), last_failure_id = excluded.last_failure_id
      returning fingerprint
    )
    insert into audit (who, key_id, what, target, detail)
    select ${actor(db, request.who)}, 'failure.archive', fingerprint, jsonb_build_object('note', ${request.note}::text) from kept
    returning id`
  return rows.length > 0
}
