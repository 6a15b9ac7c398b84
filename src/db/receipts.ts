import type { Move } from '../domain/transitions.ts'
import { statusWord, type Phase, type Status, type Task } from '../domain/types.ts'
import { resolvedCte } from './alarms.ts'
import { plainArray, setOf, textArray, unlessAll } from './arrays.ts'
import { statementTime, waitsAtMost } from './transitions.ts'
import type { Applied, Completion, OnWritten, ReceiptRow } from './transitions.ts'
import type { Sql } from './pool.ts'
import type { delivery, Row } from './schema.ts'
import { bodilessTaskColumns, taskOf, type TaskRow } from './task-row.ts'

/** Replaces the posted `extend`. `extend` is JSON. */
export async function setExtend(sql: Sql, taskId: string, extend: string): Promise<void> {
  await sql`update task set extend = ${extend}::text::jsonb where id = ${taskId}::uuid`
}

/** A task without its body, which only hooks need. */
export type BodilessTask = Omit<Task, 'messageBody'>

/** The bodies of tasks, in the order of `taskIds`; undefined where the task is gone. */
export async function readBodies(sql: Sql, taskIds: readonly string[]): Promise<(string | undefined)[]> {
  const rows = await sql<Pick<TaskRow, 'id' | 'message_body'>[]>`
    select id, message_body from task where id = any(${plainArray(taskIds)}::uuid[])`
  const bodies = new Map(rows.map(row => [row.id, row.message_body]))
  return taskIds.map(id => bodies.get(id))
}

/** The delivery that a receipt is about, in its current state. */
export interface ReceivingDelivery {
  task: BodilessTask
  status: Status
  phase: Phase | null
  attempt: number
  roundFrom: number
  triesLeft: number
  lost: number
  needsReceipt: boolean
  /** ms since it was first delivered in this round; null when it was not. */
  deliveredMs: number | null
}

/** The content of a token: the delivery whose receipt it proves, and the time of its issue, in ms since 1970. */
export interface ReceiptLookup {
  taskNo: string
  downstream: string
  issuedMs: number
}

/**
 * The deliveries that receipts are about, in the order of `lookups`; undefined where the row is gone. A token outlives its task,
 * whose number may then be posted again: a token that is older than the current task of this number belongs to a row that is
 * gone. The hour is for hosts whose clocks are behind the database's.
 */
export async function findReceiving(
  sql: Sql,
  lookups: readonly ReceiptLookup[]
): Promise<(ReceivingDelivery | undefined)[]> {
  const rows = await sql<ReceivingRow[]>`
    select r.ord::int, d.status, d.phase, d.attempt, d.round_from, d.tries_left, d.lost, d.needs_receipt,
      extract(epoch from now() - d.delivered_at)::float8 * 1000 as delivered_ms,
      -- 200 bodies of 256 kB would take longer than a look-up may.
      ${bodilessTaskColumns(sql)}
    from unnest(
      ${textArray(lookups.map(one => one.taskNo))}::text[], ${textArray(lookups.map(one => one.downstream))}::text[],
      ${plainArray(lookups.map(one => one.issuedMs))}::float8[]
    ) with ordinality as r (task_no, downstream, issued_ms, ord)
    join task t on t.task_no = r.task_no
      and t.created_at <= to_timestamp(r.issued_ms / 1000) + interval '1 hour'
    join delivery d on d.task_id = t.id and d.downstream = r.downstream
    where t.task_no = any(${textArray(lookups.map(one => one.taskNo))}::text[])`
  const found = new Array<ReceivingDelivery | undefined>(lookups.length).fill(undefined)
  for (const row of rows) {
    found[row.ord - 1] = {
      task: taskOf(row),
      status: statusWord(row.status),
      phase: row.phase,
      attempt: row.attempt,
      roundFrom: row.round_from,
      triesLeft: row.tries_left,
      lost: row.lost,
      needsReceipt: row.needs_receipt,
      deliveredMs: row.delivered_ms
    }
  }
  return found
}

/** A receipt that makes a SENDING delivery HANDLED: by far the most receipts. */
export interface HandledReceipt {
  move: Move & { name: 'receive'; ifStill: 'SENDING' }
  receipt: ReceiptRow
}

export const isHandledReceipt = (completion: Completion): completion is HandledReceipt =>
  completion.move?.name === 'receive' &&
  completion.move.ifStill === 'SENDING' &&
  completion.receipt !== undefined

/**
 * A version of applyMoves for plain receipts only, at half of the cost: a delivery that is no longer SENDING is stale here,
 * so its row need not be read before. Tests check that both write the same, except `owner`, which means nothing then.
 */
export async function completeReceipts(
  sql: Sql,
  plains: readonly HandledReceipt[],
  lockMs = 0,
  onWritten?: OnWritten
): Promise<Applied[]> {
  // Row by row in the lock order of all statements, as in completeSends.
  const [done] = await sql<[{ at: number; moved: string | null }]>`
    with m as materialized (
      select * from unnest(
        ${plainArray(plains.map(one => one.move.taskId))}::uuid[], ${textArray(plains.map(one => one.move.downstream))}::text[],
        ${plainArray(plains.map(one => one.move.attempt))}::int[], ${textArray(plains.map(one => one.receipt.reason))}::text[],
        ${textArray(plains.map(one => one.receipt.data))}::text[], ${textArray(plains.map(one => one.receipt.remote))}::text[]
      ) as m (task_id, downstream, attempt, reason, data, remote)
      where ${waitsAtMost(sql, lockMs)}
      order by task_id, downstream
    ), moved as (
      update delivery d set
        status = 1,
        phase = null,
        next_action_at = null,
        reason = null,
        handled_at = now(),
        handled_by = 'receipt',
        updated_at = now()
      from m
      -- A phase means SENDING. With status = 0 PostgreSQL would use the index of due deliveries.
      where d.task_id = m.task_id and d.downstream = m.downstream and d.phase is not null
        and m.attempt between d.round_from and d.attempt
      returning d.task_id, d.downstream, d.attempt, d.created_at, m.attempt as answered, m.reason as receipt_reason,
        m.data, m.remote
    ), kept as (
      insert into receipt (task_id, downstream, attempt, result, reason, data, applied, remote)
      select task_id, downstream, answered, 'HANDLED', receipt_reason, data, true, remote from moved
    ), ${resolvedCte(sql)}
    select ${statementTime(sql)} as at,
      (select ${unlessAll(sql, plains.length, sql`task_id || downstream`)} from moved) as moved`
  onWritten?.(done.at)
  const moved = setOf(done.moved)
  return plains.map(({ move }) => (!moved || moved.has(move.taskId + move.downstream) ? 'moved' : 'stale'))
}

type ReceivingRow = TaskRow &
  Pick<
    Row<typeof delivery>,
    'status' | 'phase' | 'attempt' | 'round_from' | 'tries_left' | 'lost' | 'needs_receipt'
  > & { ord: number; delivered_ms: number | null }
