import type { Move } from '../task/states.ts'
import type { Phase, Status, Task } from '../task/task.ts'
import { plain, texts } from './literal.ts'
import { taskOf, type TaskRow } from './load.ts'
import type { Applied, Asked, ReceiptRow } from './moves.ts'
import type { Sql } from './open.ts'
import { statusWord } from './view.ts'

/** The delivery a receipt speaks of, as it stands now. */
export interface Receiving {
  task: Task
  downstream: string
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

/** The deliveries that receipts speak of, in the order asked; undefined where the row is gone. */
export async function findReceiving(
  sql: Sql,
  asked: readonly { taskNo: string; downstream: string }[]
): Promise<(Receiving | undefined)[]> {
  const rows = await sql<ReceivingRow[]>`
    select r.ord::int, d.downstream, d.status, d.phase, d.attempt, d.round_from, d.tries_left, d.lost, d.needs_receipt,
      extract(epoch from now() - d.delivered_at)::float8 * 1000 as delivered_ms,
      t.id, t.task_no, t.message_code, t.scene_type, t.message_body, t.deliver_start_time, t.need_callback,
      t.retry_times, t.extend, t.traceparent, t.created_at, t.created_by
    from unnest(
      ${texts(asked.map(one => one.taskNo))}::text[], ${texts(asked.map(one => one.downstream))}::text[]
    ) with ordinality as r (task_no, downstream, ord)
    join task t on t.task_no = r.task_no
    join delivery d on d.task_id = t.id and d.downstream = r.downstream
    where t.task_no = any(${texts(asked.map(one => one.taskNo))}::text[])`
  const found = new Array<Receiving | undefined>(asked.length).fill(undefined)
  for (const row of rows) {
    found[row.ord - 1] = {
      task: taskOf(row),
      downstream: row.downstream,
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

/** A receipt that makes HANDLED what was SENDING: by far the most of them. */
export interface PlainReceipt {
  move: Move & { name: 'receive'; sending: true }
  receipt: ReceiptRow
}

export const isPlainReceipt = (asked: Asked): asked is PlainReceipt =>
  asked.move?.name === 'receive' && asked.move.sending === true && asked.receipt !== undefined

/**
 * What applyMoves does, for plain receipts and nothing else: half of the cost, for what is not SENDING any more is stale
 * here, so that nobody need look at the row before. That both write the same is tested.
 */
export async function recordReceipts(sql: Sql, plains: readonly PlainReceipt[]): Promise<Applied[]> {
  // Row by row in the order in which everybody locks, as recordSends.
  const [done] = await sql<[{ moved: string | null }]>`
    with m as materialized (
      select * from unnest(
        ${plain(plains.map(one => one.move.taskId))}::uuid[], ${texts(plains.map(one => one.move.downstream))}::text[],
        ${plain(plains.map(one => one.move.attempt))}::int[], ${texts(plains.map(one => one.receipt.reason))}::text[],
        ${texts(plains.map(one => one.receipt.data))}::text[], ${texts(plains.map(one => one.receipt.remote))}::text[]
      ) as m (task_id, downstream, attempt, reason, data, remote)
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
      -- SENDING, in words that do not make PostgreSQL think of the index of what is due.
      where d.task_id = m.task_id and d.downstream = m.downstream and d.phase is not null
        and m.attempt between d.round_from and d.attempt
      returning d.task_id, d.downstream, d.attempt, d.created_at, m.attempt as answered, m.reason as receipt_reason,
        m.data, m.remote
    ), kept as (
      insert into receipt (task_id, downstream, attempt, result, reason, data, applied, remote)
      select task_id, downstream, answered, 'HANDLED', receipt_reason, data, true, remote from moved
    ), resolved as (
      update alarm a set resolved_at = now()
      from moved m
      -- As in applyMoves: there is no alarm before a second try or a minute.
      where (m.attempt > 1 or m.created_at < now() - interval '1 minute')
        and a.task_id = m.task_id and a.downstream = m.downstream and a.resolved_at is null
    )
    select case when count(*) < ${plains.length} then coalesce(string_agg(task_id || downstream, ','), '') end as moved
    from moved`
  const moved = done.moved === null ? null : new Set(done.moved.split(','))
  return plains.map(({ move }) => (!moved || moved.has(move.taskId + move.downstream) ? 'moved' : 'stale'))
}

interface ReceivingRow extends TaskRow {
  ord: number
  downstream: string
  status: number
  phase: Phase | null
  attempt: number
  round_from: number
  tries_left: number
  lost: number
  needs_receipt: boolean
  delivered_ms: number | null
}
