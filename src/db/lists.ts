// What people look at: one task whole, and lists by a keyset that new rows cannot shift.
import { plain, texts } from './literal.ts'
import type { Sql } from './open.ts'
import {
  deliveryView,
  iso,
  some,
  statusWord,
  taskView,
  type AttemptView,
  type DeliveryRow,
  type DeliveryView,
  type ReceiptView,
  type TaskHeadRow,
  type TaskView
} from './view.ts'
import { statusNumber, type Status } from '../task/task.ts'

type FullRow = TaskHeadRow & DeliveryRow & { id: string }

/** Tasks with their deliveries, without attempts and receipts, by taskNo; unknown ones are missing. */
export async function readTasks(sql: Sql, taskNos: readonly string[]): Promise<Map<string, TaskView>> {
  const rows = await sql<FullRow[]>`
    select t.id, t.task_no, t.message_code, t.scene_type, t.deliver_start_time, t.need_callback, t.retry_times,
      t.extend, t.created_at, t.created_by, d.downstream, d.status, d.phase, d.next_action_at, d.attempt,
      d.tries_left, d.deliver_before, d.reason, d.delivered_at, d.handled_at, d.handled_by
    from task t join delivery d on d.task_id = t.id
    where t.task_no = any(${texts(taskNos)}::text[])
    order by t.task_no, d.downstream`
  return new Map(group(rows).map(([task, deliveries]) => [task.task_no, taskView(task, deliveries)]))
}

/** One task whole: body text, deliveries, each with its attempts and receipts. null: unknown. */
export async function readTask(sql: Sql, taskNo: string): Promise<TaskView | null> {
  const [head] = await sql<{ id: string; message_body: string }[]>`
    select id, message_body from task where task_no = ${taskNo}`
  if (!head) return null
  const [tasks, attempts, receipts] = await Promise.all([
    readTasks(sql, [taskNo]),
    readAttempts(sql, head.id),
    readReceipts(sql, head.id)
  ])
  const task = tasks.get(taskNo)
  if (!task) return null
  return {
    ...task,
    messageBody: head.message_body,
    deliveries: task.deliveries.map(delivery => ({
      ...delivery,
      attempts: attempts.get(delivery.downstream) ?? [],
      receipts: receipts.get(delivery.downstream) ?? []
    }))
  }
}

async function readAttempts(sql: Sql, taskId: string): Promise<Map<string, AttemptView[]>> {
  const rows = await sql<
    {
      downstream: string
      attempt: number
      outcome: string
      reason: string | null
      status_code: number | null
      answer: Uint8Array | null
      headers: string | null
      address: string | null
      warning: string | null
      ms: number
      node: string
      started_at: Date
    }[]
  >`
    select downstream, attempt, outcome, reason, status_code, answer, headers, address, warning, ms, node, started_at
    from attempt where task_id = ${taskId} order by downstream, attempt`
  return byDownstream(rows, row => ({
    attempt: row.attempt,
    outcome: row.outcome,
    ...some('reason', row.reason),
    ...some('status', row.status_code),
    ...some('answer', row.answer && Buffer.from(row.answer).toString('utf8')),
    ...some('headers', row.headers === null ? null : (JSON.parse(row.headers) as unknown)),
    ...some('address', row.address),
    ...some('warning', row.warning),
    ms: row.ms,
    node: row.node,
    startedAt: row.started_at.toISOString()
  }))
}

async function readReceipts(sql: Sql, taskId: string): Promise<Map<string, ReceiptView[]>> {
  const rows = await sql<
    {
      downstream: string
      attempt: number
      result: string
      reason: string | null
      data: string | null
      applied: boolean
      late: boolean
      remote: string | null
      created_at: Date
    }[]
  >`
    select downstream, attempt, result, reason, data, applied, late, remote, created_at
    from receipt where task_id = ${taskId} order by id`
  return byDownstream(rows, row => ({
    attempt: row.attempt,
    result: row.result,
    ...some('reason', row.reason),
    ...some('data', row.data === null ? null : (JSON.parse(row.data) as unknown)),
    applied: row.applied,
    late: row.late,
    ...some('remote', row.remote),
    createdAt: row.created_at.toISOString()
  }))
}

function byDownstream<Row extends { downstream: string }, View>(
  rows: readonly Row[],
  view: (row: Row) => View
): Map<string, View[]> {
  const map = new Map<string, View[]>()
  for (const row of rows) map.set(row.downstream, [...(map.get(row.downstream) ?? []), view(row)])
  return map
}

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

/** Tasks by their visible status and more, newest first. */
export async function listTasks(
  sql: Sql,
  window: Window & { status?: Status; sceneType?: string; needCallback?: boolean }
): Promise<{ tasks: TaskView[]; nextCursor?: string } | 'bad_cursor'> {
  if (window.cursor !== undefined && !uuid.test(window.cursor)) return 'bad_cursor'
  const ids = await sql<{ id: string }[]>`
    select t.id
    from task t cross join lateral (
      select case when bool_or(d.status = 0) then 0 when bool_or(d.status = 2) then 2
          when bool_or(d.status = 1) then 1 else -1 end as status,
        bool_or(d.needs_receipt) as needs_receipt,
        array_agg(d.downstream) as downstreams
      from delivery d where d.task_id = t.id
    ) s
    where t.id < ${upTo(window)}::uuid and t.id >= ${uuidAt(window.from)}::uuid
      and (${codes(window)}::text[] is null or t.message_code = any(${codes(window)}::text[]))
      and (${window.messageCode ?? null}::text is null or t.message_code = ${window.messageCode ?? null})
      and (${window.sceneType ?? null}::text is null or t.scene_type = ${window.sceneType ?? null})
      and (${window.downstream ?? null}::text is null or ${window.downstream ?? null} = any(s.downstreams))
      and (${window.needCallback ?? null}::boolean is null or s.needs_receipt = ${window.needCallback ?? null})
      and (${number(window.status)}::int is null or s.status = ${number(window.status)})
    order by t.id desc
    limit ${window.limit + 1}`
  const page = ids.slice(0, window.limit).map(row => row.id)
  const rows = await sql<FullRow[]>`
    select t.id, t.task_no, t.message_code, t.scene_type, t.deliver_start_time, t.need_callback, t.retry_times,
      t.extend, t.created_at, t.created_by, d.downstream, d.status, d.phase, d.next_action_at, d.attempt,
      d.tries_left, d.deliver_before, d.reason, d.delivered_at, d.handled_at, d.handled_by
    from task t join delivery d on d.task_id = t.id
    where t.id = any(${plain(page)}::uuid[])
    order by t.id desc, d.downstream`
  const last = page.at(-1)
  return {
    tasks: group(rows).map(([task, deliveries]) => taskView(task, deliveries)),
    ...(ids.length > page.length && last !== undefined ? { nextCursor: last } : {})
  }
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
    select a.task_id, t.task_no, t.message_code, a.downstream, a.attempt, a.kind, d.status, d.reason, a.created_at,
      a.sent_at, a.resolved_at, a.tries
    from alarm a join task t on t.id = a.task_id
      join delivery d on d.task_id = a.task_id and d.downstream = a.downstream
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
      ...some('reason', row.reason),
      createdAt: row.created_at.toISOString(),
      ...some('sentAt', iso(row.sent_at)),
      ...some('resolvedAt', iso(row.resolved_at)),
      tries: row.tries
    })),
    ...(rows.length > page.length && last
      ? { nextCursor: `${last.task_id}:${last.downstream}:${last.attempt}:${last.kind}` }
      : {})
  }
}

const codes = (window: Window): string | null => window.messageCodes && texts(window.messageCodes)
const number = (status: Status | undefined): number | null =>
  status === undefined ? null : statusNumber[status]

/** Consecutive rows of one task, with its deliveries. */
function group(rows: readonly FullRow[]): [FullRow, FullRow[]][] {
  const groups: [FullRow, FullRow[]][] = []
  for (const row of rows) {
    const current = groups.at(-1)
    if (current?.[0].id === row.id) current[1].push(row)
    else groups.push([row, [row]])
  }
  return groups
}
