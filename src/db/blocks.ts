// The causes that block the deliveries of one task.
import { sql } from './drizzle.ts'
import { plainArray, textArray } from './arrays.ts'
import { ofCodes } from './page.ts'
import type { Reads } from './reads.ts'
import { present } from '../domain/optional-members.ts'
import { statusWord, type TaskState } from '../domain/types.ts'
import type { Blocker } from '../domain/waiting-for.ts'

interface Blocks {
  /** By downstream. */
  paused: Map<string, { since: string; by?: string }>
  /** The prerequisites that it still waits for. */
  blockers: Blocker[]
  /** By downstream: the head of its orderingKey, which may run, or FAILED and holds the key. */
  heads: Map<string, Blocker>
}

/** A task, or the head of an orderingKey. `since`: ms since 1970. */
type BlockerRow = {
  taskNo: string
  /** Unset for the head of a key: its task is ACTIVE. */
  state?: TaskState
  status: number | null
  since?: number | null
  orderingKey?: string | null
}

const blockerOf = ({ taskNo, state = 'ACTIVE', status, since, orderingKey }: BlockerRow): Blocker => ({
  taskNo,
  status: state === 'ACTIVE' ? statusWord(status ?? 0) : state,
  ...present('since', since == null ? null : time(since)),
  ...present('orderingKey', orderingKey)
})

const time = (ms: number): string => new Date(ms).toISOString()

/** `codes`: only tasks of these messageCodes are named; null: all. */
export async function readBlocks(
  { db }: Reads,
  taskNo: string,
  downstreams: readonly string[],
  codes: readonly string[] | null
): Promise<Blocks> {
  const [row] = await db.execute<{
    paused: { name: string; since: number; by: string | null }[] | null
    blockers: BlockerRow[] | null
    heads: (BlockerRow & { downstream: string })[] | null
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
        where t.task_no = ${taskNo} and ${ofCodes(codes, 'other.message_code')}
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
      where t.task_no = ${taskNo} and head.status in (0, 2) and ${ofCodes(codes, 'other.message_code')}
    ) as heads`)
  return {
    paused: new Map(
      row?.paused?.map(({ name, since, by }) => [name, { since: time(since), ...present('by', by) }])
    ),
    blockers: (row?.blockers ?? []).map(blockerOf),
    heads: new Map(row?.heads?.map(head => [head.downstream, blockerOf(head)]))
  }
}

/** The first blocker of each of these BLOCKED deliveries, by `taskId downstream`. `codes` as above. */
export async function readBlockers(
  { db }: Reads,
  blocked: readonly { taskId: string; downstream: string }[],
  codes: readonly string[] | null
): Promise<Map<string, Blocker>> {
  if (blocked.length === 0) return new Map()
  const rows = await db.execute<BlockerRow & { key: string }>(sql`
    select b.task_id || ' ' || b.downstream as key, other.task_no as "taskNo", other.state,
      x.ordering_key as "orderingKey", x.status
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
    where ${ofCodes(codes, 'other.message_code')}`)
  return new Map(rows.map(row => [row.key, blockerOf(row)]))
}

/** The tasks directly before those of a task in their orderingKeys, by downstream. `codes` as above. */
export async function readAhead(
  { db }: Reads,
  taskNo: string,
  codes: readonly string[] | null
): Promise<Map<string, string>> {
  const rows = await db.execute<{ downstream: string; taskNo: string }>(sql`
    select d.downstream, other.task_no as "taskNo"
    from task t join delivery d on d.task_id = t.id and d.position > 0
      cross join lateral (
        select a.task_id from delivery a
        where a.downstream = d.downstream and a.ordering_key = d.ordering_key and a.position > 0 and a.position < d.position
        order by a.position desc limit 1
      ) ahead join task other on other.id = ahead.task_id
    where t.task_no = ${taskNo} and ${ofCodes(codes, 'other.message_code')}`)
  return new Map(rows.map(row => [row.downstream, row.taskNo]))
}
