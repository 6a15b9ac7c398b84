// What people look at: lists by a keyset that new rows cannot shift.
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import {
  deliveryView,
  fullColumns,
  iso,
  present,
  statusWord,
  tasksOf,
  type DeliveryView,
  type FullRow,
  type TaskView
} from './views.ts'
import { statusNumber, type Status } from '../domain/types.ts'

/** What every list can be narrowed by. `cursor` is the last page's; a list goes from the newest to the oldest. */
export interface Window {
  messageCodes: readonly string[] | null
  messageCode?: string
  downstream?: string
  from: Date
  to?: Date
  cursor?: string
  limit: number
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const highest = 'ffffffff-ffff-ffff-ffff-ffffffffffff'

/** The lowest uuid v7 of a time (RFC 9562, section 5.7: 48 bits of Unix ms come first). */
function uuidAt(at: Date): string {
  const hex = Math.max(0, at.getTime()).toString(16).padStart(12, '0')
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-0000-0000-000000000000`
}

const upTo = (window: Window): string => window.cursor ?? (window.to ? uuidAt(window.to) : highest)

/** Narrows tasks further; `downstream` is one of the task's, whatever became of that delivery. */
export type TaskFilter = Window & { status?: Status; sceneType?: string; needCallback?: boolean }

/** Tasks by their visible status and more, newest first. */
export async function listTasks(
  sql: Sql,
  filter: TaskFilter
): Promise<{ tasks: TaskView[]; nextCursor?: string } | 'bad_cursor'> {
  if (filter.cursor !== undefined && !uuid.test(filter.cursor)) return 'bad_cursor'
  const ids = await (filter.status === 'FAILED' ? failedIds : taskIds)(sql, filter)
  const page = ids.slice(0, filter.limit).map(row => row.id)
  const rows = await sql<FullRow[]>`
    select ${fullColumns(sql)}
    from task t join delivery d on d.task_id = t.id
    where t.id = any(${plainArray(page)}::uuid[])
    order by t.id desc, d.downstream`
  const last = page.at(-1)
  return {
    tasks: tasksOf(rows),
    ...(ids.length > page.length && last !== undefined ? { nextCursor: last } : {})
  }
}

/** One more than a page, by the primary key. */
function taskIds(sql: Sql, filter: TaskFilter): Promise<{ id: string }[]> {
  return sql<{ id: string }[]>`
    select t.id
    from task t cross join lateral (
      select case when bool_or(d.status = 0) then 0 when bool_or(d.status = 2) then 2
          when bool_or(d.status = 1) then 1 else -1 end as status,
        bool_or(d.needs_receipt) as needs_receipt,
        array_agg(d.downstream) as downstreams
      from delivery d where d.task_id = t.id
    ) s
    where t.id < ${upTo(filter)}::uuid and t.id >= ${uuidAt(filter.from)}::uuid
      and (${codes(filter)}::text[] is null or t.message_code = any(${codes(filter)}::text[]))
      and (${filter.messageCode ?? null}::text is null or t.message_code = ${filter.messageCode ?? null})
      and (${filter.sceneType ?? null}::text is null or t.scene_type = ${filter.sceneType ?? null})
      and (${filter.downstream ?? null}::text is null or ${filter.downstream ?? null} = any(s.downstreams))
      and (${filter.needCallback ?? null}::boolean is null or s.needs_receipt = ${filter.needCallback ?? null})
      and (${number(filter.status)}::int is null or s.status = ${number(filter.status)})
    order by t.id desc
    limit ${filter.limit + 1}`
}

/**
 * The same for FAILED, which are few among millions: from the index of FAILED deliveries, a page of each downstream that
 * has any. A task that still has a SENDING one is not FAILED yet.
 */
function failedIds(sql: Sql, filter: TaskFilter): Promise<{ id: string }[]> {
  return sql<{ id: string }[]>`
    with recursive failing (name) as (
      select min(downstream) from delivery where status = 2
      union all
      select (select min(d.downstream) from delivery d where d.status = 2 and d.downstream > f.name)
      from failing f where f.name is not null
    )
    select distinct page.id
    from failing f cross join lateral (
      select t.id
      from delivery d
        join task t on t.id = d.task_id
        cross join lateral (
          select bool_or(o.status = 0) as sending, bool_or(o.needs_receipt) as needs_receipt,
            array_agg(o.downstream) as downstreams
          from delivery o where o.task_id = d.task_id
        ) s
      where d.downstream = f.name and d.status = 2
        and d.task_id < ${upTo(filter)}::uuid and d.task_id >= ${uuidAt(filter.from)}::uuid
        and not s.sending
        and (${codes(filter)}::text[] is null or t.message_code = any(${codes(filter)}::text[]))
        and (${filter.messageCode ?? null}::text is null or t.message_code = ${filter.messageCode ?? null})
        and (${filter.sceneType ?? null}::text is null or t.scene_type = ${filter.sceneType ?? null})
        and (${filter.downstream ?? null}::text is null or ${filter.downstream ?? null} = any(s.downstreams))
        and (${filter.needCallback ?? null}::boolean is null or s.needs_receipt = ${filter.needCallback ?? null})
      order by d.task_id desc
      limit ${filter.limit + 1}
    ) page
    order by page.id desc
    limit ${filter.limit + 1}`
}

export type ListedDelivery = {
  taskNo: string
  messageCode: string
  sceneType: string
  createdAt: string
} & DeliveryView

/** Deliveries, newest task first. The cursor is `taskId:downstream`. */
export async function listDeliveries(
  sql: Sql,
  window: Window & { status?: Status; phase?: string; reason?: string }
): Promise<{ deliveries: ListedDelivery[]; nextCursor?: string } | 'bad_cursor'> {
  const [id = '', name = ''] = window.cursor?.split(':') ?? [upTo(window)]
  if (!uuid.test(id)) return 'bad_cursor'
  const rows = await sql<(FullRow & { task_id: string })[]>`
    select t.id, t.task_no, t.message_code, t.scene_type, t.created_at, d.downstream, d.status, d.phase,
      d.next_action_at, d.attempt, d.tries_left, d.deliver_before, d.reason, d.delivered_at, d.handled_at, d.handled_by
    from delivery d join task t on t.id = d.task_id
    where (d.task_id, d.downstream) < (${id}::uuid, ${name}) and d.task_id >= ${uuidAt(window.from)}::uuid
      and (${codes(window)}::text[] is null or t.message_code = any(${codes(window)}::text[]))
      and (${window.messageCode ?? null}::text is null or t.message_code = ${window.messageCode ?? null})
      and (${window.downstream ?? null}::text is null or d.downstream = ${window.downstream ?? null})
      and (${number(window.status)}::int is null or d.status = ${number(window.status)})
      and (${window.phase ?? null}::text is null or d.phase = ${window.phase ?? null})
      and (${window.reason ?? null}::text is null or d.reason = ${window.reason ?? null})
    order by d.task_id desc, d.downstream desc
    limit ${window.limit + 1}`
  const page = rows.slice(0, window.limit)
  const last = page.at(-1)
  return {
    deliveries: page.map(row => ({
      taskNo: row.task_no,
      messageCode: row.message_code,
      sceneType: row.scene_type,
      createdAt: row.created_at.toISOString(),
      ...deliveryView(row)
    })),
    ...(rows.length > page.length && last ? { nextCursor: `${last.id}:${last.downstream}` } : {})
  }
}

export interface ListedAlarm {
  taskNo: string
  messageCode: string
  downstream: string
  attempt: number
  kind: string
  status: Status
  reason?: string
  createdAt: string
  sentAt?: string
  resolvedAt?: string
  tries: number
}

/** Alarms, newest task first. `open`: not resolved yet. The cursor is `taskId:downstream:attempt:kind`. */
export async function listAlarms(
  sql: Sql,
  window: Window & { kind?: string; open?: boolean }
): Promise<{ alarms: ListedAlarm[]; nextCursor?: string } | 'bad_cursor'> {
  const [id = '', name = '', attempt = '0', kind = ''] = window.cursor?.split(':') ?? [upTo(window)]
  if (!uuid.test(id) || !/^\d{1,9}$/.test(attempt)) return 'bad_cursor'
  const rows = await sql<
    {
      task_id: string
      task_no: string
      message_code: string
      downstream: string
      attempt: number
      kind: string
      status: number
      reason: string | null
      created_at: Date
      sent_at: Date | null
      resolved_at: Date | null
      tries: number
    }[]
  >`
    select a.task_id, t.task_no, t.message_code, a.downstream, a.attempt, a.kind, d.status,
      case when a.kind = 'FAILED' then d.reason else coalesce(x.reason, d.reason) end as reason, a.created_at,
      a.sent_at, a.resolved_at, a.tries
    from alarm a join task t on t.id = a.task_id
      join delivery d on d.task_id = a.task_id and d.downstream = a.downstream
      left join attempt x on x.task_id = a.task_id and x.downstream = a.downstream and x.attempt = a.attempt
    where (a.task_id, a.downstream, a.attempt, a.kind) < (${id}::uuid, ${name}, ${Number(attempt)}::int, ${kind})
      and a.task_id >= ${uuidAt(window.from)}::uuid
      and (${codes(window)}::text[] is null or t.message_code = any(${codes(window)}::text[]))
      and (${window.messageCode ?? null}::text is null or t.message_code = ${window.messageCode ?? null})
      and (${window.downstream ?? null}::text is null or a.downstream = ${window.downstream ?? null})
      and (${window.kind ?? null}::text is null or a.kind = ${window.kind ?? null})
      and (${window.open ?? null}::boolean is null or (a.resolved_at is null) = ${window.open ?? null})
    order by a.task_id desc, a.downstream desc, a.attempt desc, a.kind desc
    limit ${window.limit + 1}`
  const page = rows.slice(0, window.limit)
  const last = page.at(-1)
  return {
    alarms: page.map(row => ({
      taskNo: row.task_no,
      messageCode: row.message_code,
      downstream: row.downstream,
      attempt: row.attempt,
      kind: row.kind,
      status: statusWord(row.status),
      ...present('reason', row.reason),
      createdAt: row.created_at.toISOString(),
      ...present('sentAt', iso(row.sent_at)),
      ...present('resolvedAt', iso(row.resolved_at)),
      tries: row.tries
    })),
    ...(rows.length > page.length && last
      ? { nextCursor: `${last.task_id}:${last.downstream}:${last.attempt}:${last.kind}` }
      : {})
  }
}

const codes = (window: Window): string | null => window.messageCodes && textArray(window.messageCodes)
const number = (status: Status | undefined): number | null =>
  status === undefined ? null : statusNumber[status]
