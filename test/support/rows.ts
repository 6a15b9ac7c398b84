// Inserts rows directly: deliveries in any state, for tests of the SQL.
import type { AttemptRow } from '../../src/db/attempt-rows.ts'
import type { Sql } from '../../src/db/pool.ts'
import { phaseOf, statusOf } from '../../src/domain/transitions.ts'
import { statusNumber, type Phase } from '../../src/domain/types.ts'
import { timeOf, uuidv7 } from '../../src/domain/ids.ts'
import type { DeliveryState } from './model.ts'

export interface RowOptions {
  downstream?: string
  taskNo?: string
  messageCode?: string
  taskId?: string
  /** Its clock (next_action_at), from now; negative: it is due. */
  inMs?: number
  needsReceipt?: boolean
}

/** Inserts a task with one delivery in this state, since its POST by the time of its id. Returns the task's id. */
export async function standing(sql: Sql, at: DeliveryState, options: RowOptions = {}): Promise<string> {
  const { downstream = 'warehouse', messageCode = 'order.paid', inMs = 0, needsReceipt = false } = options
  const { taskId = uuidv7() } = options
  const phase = phaseOf(at.state)
  const ended = { FAILED: 'SEND_EXHAUSTED', DELETED: 'DELETED' }[at.state as string] ?? null
  await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    values (${taskId}, ${options.taskNo ?? `no:${taskId}`}, ${messageCode}, '', '{}', 'hash', 'test')
    on conflict do nothing`
  await sql`
    insert into delivery (
      task_id, downstream, status, phase, next_action_at, attempt, tries_left, lost, round_from, needs_receipt,
      reason, handled_at, handled_by, updated_at
    ) values (
      ${taskId}, ${downstream}, ${statusNumber[statusOf(at.state)]}, ${phase},
      case when ${phase !== null}::boolean then now() + ${inMs}::float8 * interval '1 ms' end,
      ${at.attempt}, ${at.triesLeft}, ${at.lost}, ${at.roundFrom}, ${needsReceipt}, ${ended},
      ${at.state === 'HANDLED' ? new Date() : null}, ${at.state === 'HANDLED' ? 'send' : null}, ${timeOf(taskId)}
    )`
  return taskId
}

let made = 0
/** A uuid v7 with the time of this many days ago. */
export function idOf(days: number): string {
  const hex = Math.round(Date.now() - days * 24 * 3_600_000)
    .toString(16)
    .padStart(12, '0')
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${(++made).toString(16).padStart(12, '0')}`
}

export interface StoredRow {
  standing: DeliveryState
  reason: string | null
  /** ms until its clock runs out; null without one. */
  inMs: number | null
  handledBy: string | null
  deliveredAt: Date | null
}

export async function stored(sql: Sql, taskId: string, downstream = 'warehouse'): Promise<StoredRow> {
  const [row] = await sql<
    {
      status: number
      phase: Phase | null
      attempt: number
      tries_left: number
      lost: number
      round_from: number
      reason: string | null
      in_ms: number | null
      handled_by: string | null
      delivered_at: Date | null
    }[]
  >`
    select status, phase, attempt, tries_left, lost, round_from, reason, handled_by, delivered_at,
      extract(epoch from next_action_at - now())::float8 * 1000 as in_ms
    from delivery where task_id = ${taskId} and downstream = ${downstream}`
  if (!row) throw new Error('no such delivery')
  const ended = { 1: 'HANDLED', 2: 'FAILED', [-1]: 'DELETED' } as const
  const state = row.phase ?? ended[row.status as keyof typeof ended]
  return {
    standing: {
      state,
      attempt: row.attempt,
      triesLeft: row.tries_left,
      lost: row.lost,
      roundFrom: row.round_from
    },
    reason: row.reason,
    inMs: row.in_ms,
    handledBy: row.handled_by,
    deliveredAt: row.delivered_at
  }
}

/** The attempt of a successful send. */
export const tried = (more: Partial<AttemptRow> = {}): AttemptRow => ({
  outcome: 'delivered',
  reason: null,
  statusCode: 204,
  answer: null,
  headers: null,
  address: null,
  warning: null,
  messageId: null,
  ms: 12,
  node: 'a',
  startedAt: new Date('2026-01-02T03:04:05.678Z'),
  alarm: null,
  ...more
})

/** The result of `work`, whose writes are rolled back. Within one transaction of the caller, even now() stays the same. */
export async function undone<T>(sql: Sql, work: (sql: Sql) => Promise<T>): Promise<T> {
  await sql.unsafe('savepoint undone')
  try {
    return await work(sql)
  } finally {
    await sql.unsafe('rollback to undone')
  }
}

/** All rows that a move may write, in a fixed order. */
export async function written(sql: Sql): Promise<unknown> {
  const tables = []
  for (const table of ['delivery', 'attempt', 'alarm', 'receipt']) {
    const id = table === 'receipt' ? " - 'id'" : ''
    tables.push([
      ...(await sql.unsafe(`
        select to_jsonb(r)${id} as row from ${table} r order by task_id, downstream, attempt, to_jsonb(r)${id}`))
    ])
  }
  return tables
}

/** Lets every row of a process live for minutes. It lives for 15 s, and a busy machine may take longer for a test. */
export const keepNodes = (sql: Pick<Sql, 'unsafe'>): Promise<unknown> =>
  sql.unsafe(`update node set seen_at = now() + interval '10 minutes'`)
