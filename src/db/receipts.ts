import { texts } from './literal.ts'
import { taskOf, type TaskRow } from './load.ts'
import type { Sql } from './open.ts'
import type { Phase, Status, Task } from '../task/task.ts'
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
