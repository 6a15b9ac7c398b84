import type { Sql } from './open.ts'
import { indexes, plain, texts } from './literal.ts'

/** A task to store. Its text members are as posted; times are Dates; `delayMs` counts from the database's now. */
export interface NewTask {
  id: string
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: string
  contentHash: string
  startAt: Date | null
  delayMs: number | null
  deliverBefore: Date | null
  needCallback: boolean | null
  retryTimes: number | null
  extend: string | null
  traceparent: string | null
  createdBy: string
  deliveries: NewDelivery[]
}

export interface NewDelivery {
  downstream: string
  /** The handler's `when` said no: stored as DELETED, SKIPPED. */
  skipped: boolean
  /** Claim it in the same commit if it is due; else it waits for a dispatcher. */
  claim: boolean
  leaseMs: number
  tries: number
  needsReceipt: boolean
}

/** What became of one NewTask. `inFlight` are indexes into its deliveries. */
export type Inserted =
  | { kind: 'created'; at: Date; inFlight: number[] }
  /** contentHash null: retention removed it at this very moment. */
  | { kind: 'known'; contentHash: string | null; taskNo: string }

/** Group commit of accepts: tasks and deliveries, the first claim included, in one statement. taskNos are distinct. */
export async function insertTasks(sql: Sql, tasks: readonly NewTask[]): Promise<Inserted[]> {
  const rows = tasks.flatMap((task, index) =>
    task.deliveries.map((delivery, at) => ({ task, delivery, index, at }))
  )
  const [done] = await sql<[{ now: Date; created: string | null; in_flight: string | null }]>`
    with asked as (
      select * from unnest(
        ${plain(tasks.map(task => task.id))}::uuid[], ${texts(tasks.map(task => task.taskNo))}::text[],
        ${texts(tasks.map(task => task.messageCode))}::text[], ${texts(tasks.map(task => task.sceneType))}::text[],
        ${texts(tasks.map(task => task.messageBody))}::text[], ${texts(tasks.map(task => task.contentHash))}::text[],
        ${texts(tasks.map(task => task.startAt?.toISOString()))}::timestamptz[],
        ${plain(tasks.map(task => task.delayMs))}::float8[],
        ${plain(tasks.map(task => task.needCallback))}::boolean[], ${plain(tasks.map(task => task.retryTimes))}::int[],
        ${texts(tasks.map(task => task.extend))}::jsonb[], ${texts(tasks.map(task => task.createdBy))}::text[],
        ${texts(tasks.map(task => task.traceparent))}::text[]
      ) with ordinality as a (
        id, task_no, message_code, scene_type, message_body, content_hash, start_at, delay_ms,
        need_callback, retry_times, extend, created_by, traceparent, ord
      )
    ), stored as (
      insert into task (
        id, task_no, message_code, scene_type, message_body, content_hash, deliver_start_time,
        need_callback, retry_times, extend, state, created_at, created_by, traceparent
      )
      select id, task_no, message_code, scene_type, message_body, content_hash,
        coalesce(start_at, now() + delay_ms * interval '1 ms'),
        need_callback, retry_times, extend, 'ACTIVE', now(), created_by, traceparent
      from asked
      order by task_no
      on conflict (task_no) do nothing
      returning id, deliver_start_time
    ), wanted as (
      select * from unnest(
        ${plain(rows.map(row => row.task.id))}::uuid[], ${texts(rows.map(row => row.delivery.downstream))}::text[],
        ${plain(rows.map(row => row.delivery.skipped))}::boolean[],
        ${plain(rows.map(row => row.delivery.claim))}::boolean[],
        ${plain(rows.map(row => row.delivery.leaseMs))}::float8[],
        ${plain(rows.map(row => row.delivery.tries))}::int[],
        ${plain(rows.map(row => row.delivery.needsReceipt))}::boolean[],
        ${texts(rows.map(row => row.task.deliverBefore?.toISOString()))}::timestamptz[]
      ) with ordinality as w (task_id, downstream, skipped, claim, lease_ms, tries, needs_receipt, deliver_before, ord)
    ), placed as (
      select w.*, case
          when w.skipped then null
          when w.claim and coalesce(s.deliver_start_time <= now(), true) then 'IN_FLIGHT'
          else 'WAITING'
        end as phase, s.deliver_start_time
      from wanted w join stored s on s.id = w.task_id
    ), delivered as (
      insert into delivery (
        task_id, downstream, status, phase, next_action_at, attempt, tries_left, lost, round_from,
        needs_receipt, deliver_before, reason, created_at, updated_at
      )
      select task_id, downstream, case when skipped then -1 else 0 end, phase,
        case phase
          when 'IN_FLIGHT' then now() + lease_ms * interval '1 ms'
          when 'WAITING' then least(greatest(deliver_start_time, now()), deliver_before)
        end,
        case phase when 'IN_FLIGHT' then 1 else 0 end,
        case phase when 'IN_FLIGHT' then tries - 1 else tries end,
        0, 1, needs_receipt, deliver_before, case when skipped then 'SKIPPED' end, now(), now()
      from placed
    )
    select now() as now,
      (select string_agg(a.ord::text, ',') from asked a join stored s on s.id = a.id) as created,
      (select string_agg(ord::text, ',') from placed where phase = 'IN_FLIGHT') as in_flight`
  const inserted = new Array<Inserted | undefined>(tasks.length)
  for (const index of indexes(done.created)) inserted[index] = { kind: 'created', at: done.now, inFlight: [] }
  for (const ord of indexes(done.in_flight)) {
    const row = rows[ord]
    const task = row && inserted[row.index]
    if (row && task?.kind === 'created') task.inFlight.push(row.at)
  }
  const missing = tasks.filter((_, index) => !inserted[index]).map(task => task.taskNo)
  const known = missing.length ? await findHashes(sql, missing) : new Map<string, string>()
  return tasks.map(
    (task, index) =>
      inserted[index] ?? { kind: 'known', taskNo: task.taskNo, contentHash: known.get(task.taskNo) ?? null }
  )
}

/** content_hash by taskNo, of the rows that `on conflict do nothing` left out: the insert's own snapshot cannot see them. */
async function findHashes(sql: Sql, taskNos: string[]): Promise<Map<string, string>> {
  const rows = await sql<{ task_no: string; content_hash: string }[]>`
    select task_no, content_hash from task where task_no = any(${texts(taskNos)}::text[])`
  return new Map(rows.map(row => [row.task_no, row.content_hash]))
}
