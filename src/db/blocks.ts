// What keeps deliveries of one task from going on.
import { sql } from './drizzle.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Reads } from './reads.ts'
import { statusWord } from './views.ts'
import type { Blocker } from '../domain/waiting-for.ts'

export interface Blocks {
  /** By downstream. */
  paused: Map<string, { since: string; by?: string }>
  /** The tasks that it was posted to come after. */
  blockers: Blocker[]
  /** By downstream: what stands before it in its orderingKey and may run, or FAILED and holds the key. */
  heads: Map<string, Blocker>
}

/** `codes`: tasks of other messageCodes are not named; null: all are. */
export async function readBlocks(
  { db }: Reads,
  taskNo: string,
  downstreams: readonly string[],
  codes: readonly string[] | null
): Promise<Blocks> {
  const [row] = await db.execute<{
    paused: { name: string; since: number; by: string | null }[] | null
    blockers:
      | {
          taskNo: string
          status: number | null
          state: 'ACTIVE' | 'PREPARED' | 'CANCELLED'
          since: number | null
        }[]
      | null
    heads:
      | {
          downstream: string
          orderingKey: string
          taskNo: string
          status: number
          since: number | null
        }[]
      | null
  }>(sql`
    select (
      select json_agg(json_build_object('name', name, 'since', extract(epoch from paused_at) * 1000, 'by', paused_by))
      from downstream where name = any(${textArray(downstreams)}::text[]) and paused_at is not null
    ) as paused, (
      select json_agg(x) from (
        select other.task_no as "taskNo", other.state, d.status, extract(epoch from d.since) * 1000 as since
        from task t join dependency x on x.task_id = t.id and x.done_at is null
          join task other on other.id = x.after_id
          left join lateral (
            select case when bool_or(status = 0) then 0 else max(status) end as status,
              case when not bool_or(status = 0) then max(updated_at) end as since
            from delivery where task_id = other.id
          ) d on true
        where t.task_no = ${taskNo}
          and (${codes && textArray(codes)}::text[] is null or other.message_code = any(${codes && textArray(codes)}::text[]))
        order by x.after_id
        limit 100
      ) x
    ) as blockers, (
      select json_agg(json_build_object('downstream', d.downstream, 'orderingKey', d.ordering_key, 'taskNo', other.task_no,
        'status', head.status, 'since', case when head.status = 2 then extract(epoch from head.updated_at) * 1000 end))
      from task t join delivery d on d.task_id = t.id and d.phase = 'BLOCKED' and d.position > 0
        join ordering o on o.downstream = d.downstream and o.ordering_key = d.ordering_key and o.head < d.position
        join delivery head on head.downstream = o.downstream and head.ordering_key = o.ordering_key and head.position = o.head
        join task other on other.id = head.task_id
      where t.task_no = ${taskNo} and head.status in (0, 2)
        and (${codes && textArray(codes)}::text[] is null or other.message_code = any(${codes && textArray(codes)}::text[]))
    ) as heads`)
  const time = (ms: number) => new Date(ms).toISOString()
  return {
    paused: new Map(
      row?.paused?.map(({ name, since, by }) => [
        name,
        { since: time(since), ...(by === null ? {} : { by }) }
      ])
    ),
    blockers: (row?.blockers ?? []).map(one => ({
      taskNo: one.taskNo,
      status: one.state === 'ACTIVE' ? statusWord(one.status ?? 0) : one.state,
      ...(one.since === null ? {} : { since: time(one.since) })
    })),
    heads: new Map(
      row?.heads?.map(({ downstream, orderingKey, taskNo: head, status, since }) => [
        downstream,
        {
          taskNo: head,
          orderingKey,
          status: statusWord(status),
          ...(since === null ? {} : { since: time(since) })
        }
      ])
    )
  }
}

/** What stands before each of these BLOCKED deliveries, the first of it, by `taskId downstream`. `codes` as above. */
export async function readBlockers(
  { db }: Reads,
  blocked: readonly { taskId: string; downstream: string }[],
  codes: readonly string[] | null
): Promise<Map<string, Blocker>> {
  if (blocked.length === 0) return new Map()
  const mayName = sql`(${codes && textArray(codes)}::text[] is null or other.message_code = any(${codes && textArray(codes)}::text[]))`
  const rows = await db.execute<{
    task_id: string
    downstream: string
    task_no: string
    ordering_key: string | null
    state: 'ACTIVE' | 'PREPARED' | 'CANCELLED'
    status: number | null
  }>(sql`
    select b.task_id, b.downstream, other.task_no, other.state, x.ordering_key, x.status
    from unnest(
      ${plainArray(blocked.map(one => one.taskId))}::uuid[], ${textArray(blocked.map(one => one.downstream))}::text[]
    ) b (task_id, downstream)
    cross join lateral (
      select after_id as id, null as ordering_key, (
        select case when bool_or(d.status = 0) then 0 else max(d.status) end from delivery d where d.task_id = after_id
      ) as status
      from dependency where task_id = b.task_id and done_at is null
      union all
      select head.task_id, o.ordering_key, head.status
      from delivery d join ordering o on o.downstream = d.downstream and o.ordering_key = d.ordering_key and o.head < d.position
        join delivery head on head.downstream = o.downstream and head.ordering_key = o.ordering_key and head.position = o.head
      where d.task_id = b.task_id and d.downstream = b.downstream and d.position > 0 and head.status in (0, 2)
      limit 1
    ) x join task other on other.id = x.id
    where ${mayName}`)
  return new Map(
    rows.map(row => [
      `${row.task_id} ${row.downstream}`,
      {
        taskNo: row.task_no,
        status: row.state === 'ACTIVE' ? statusWord(row.status ?? 0) : row.state,
        ...(row.ordering_key === null ? {} : { orderingKey: row.ordering_key })
      }
    ])
  )
}

/** The tasks directly before those of a task in their orderingKeys, by downstream. `codes` as above. */
export async function readAhead(
  { db }: Reads,
  taskNo: string,
  codes: readonly string[] | null
): Promise<Map<string, string>> {
  const rows = await db.execute<{ downstream: string; task_no: string }>(sql`
    select d.downstream, other.task_no
    from task t join delivery d on d.task_id = t.id and d.position > 0
      cross join lateral (
        select a.task_id from delivery a
        where a.downstream = d.downstream and a.ordering_key = d.ordering_key and a.position > 0 and a.position < d.position
        order by a.position desc limit 1
      ) ahead join task other on other.id = ahead.task_id
    where t.task_no = ${taskNo}
      and (${codes && textArray(codes)}::text[] is null or other.message_code = any(${codes && textArray(codes)}::text[]))`)
  return new Map(rows.map(row => [row.downstream, row.task_no]))
}
