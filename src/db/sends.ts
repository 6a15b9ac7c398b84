import type { Move } from '../task/states.ts'
import { plain, texts } from './literal.ts'
import { bytea, byKey, type Applied, type Asked, type AttemptRow } from './moves.ts'
import type { Sql } from './open.ts'

/** A send that went well: by far the most of all records. */
export interface Send {
  move: Move & { name: 'handled' | 'sent' }
  attempt: AttemptRow
}

export const isSend = (asked: Asked): asked is Send =>
  (asked.move?.name === 'handled' || asked.move?.name === 'sent') &&
  asked.attempt !== undefined &&
  asked.attempt.alarm === null &&
  asked.receipt === undefined

/**
 * What applyMoves does, for sends that went well and nothing else: the same guard, lock order and columns, without what
 * only the others need (alarms to raise, receipts to keep). A third of the cost; that both write the same is tested.
 */
export async function recordSends(sql: Sql, sends: readonly Send[]): Promise<Applied[]> {
  const order = sends.toSorted((a, b) => byKey(a.move, b.move))
  const ids = plain(order.map(one => one.move.taskId))
  const names = texts(order.map(one => one.move.downstream))
  const attempts = plain(order.map(one => one.move.attempt))
  // Everything is told by what is missing, which is nearly always nothing.
  const [done] = await sql<[{ moved: string | null; written: string | null }]>`
    with locked as materialized (
      select m.task_id, m.downstream, m.receipt_ms, m.handled_by
      from unnest(
        ${ids}::uuid[], ${names}::text[], ${attempts}::int[],
        ${plain(order.map(one => (one.move.name === 'sent' ? (one.move.afterMs ?? 0) : null)))}::float8[],
        ${plain(order.map(one => one.move.handledBy))}::text[]
      ) as m (task_id, downstream, attempt, receipt_ms, handled_by)
      join delivery d on d.task_id = m.task_id and d.downstream = m.downstream
      where d.task_id = any(${ids}::uuid[]) and d.attempt = m.attempt and d.phase = 'IN_FLIGHT'
      order by d.task_id, d.downstream
      for no key update of d
    ), moved as (
      update delivery d set
        status = case when l.receipt_ms is null then 1 else 0 end,
        phase = case when l.receipt_ms is null then null else 'AWAITING_RECEIPT' end,
        next_action_at = now() + l.receipt_ms * interval '1 ms',
        reason = null,
        delivered_at = coalesce(d.delivered_at, now()),
        handled_at = case when l.receipt_ms is null then now() end,
        handled_by = l.handled_by,
        updated_at = now()
      from locked l
      where d.task_id = l.task_id and d.downstream = l.downstream and d.task_id = any(${ids}::uuid[])
      returning d.task_id, d.downstream, d.attempt, d.created_at
    ), written as (
      insert into attempt (
        task_id, downstream, attempt, outcome, status_code, answer, headers, address, warning, ms, node, started_at
      )
      select task_id, downstream, attempt, 'delivered', status_code, answer, headers, address, warning, ms, node,
        to_timestamp(started_ms / 1000)
      from unnest(
        ${ids}::uuid[], ${names}::text[], ${attempts}::int[],
        ${plain(order.map(one => one.attempt.statusCode))}::int[],
        ${texts(order.map(one => bytea(one.attempt.answer)))}::bytea[],
        ${texts(order.map(one => one.attempt.headers))}::text[],
        ${texts(order.map(one => one.attempt.address))}::text[],
        ${texts(order.map(one => one.attempt.warning))}::text[],
        ${plain(order.map(one => one.attempt.ms))}::int[], ${texts(order.map(one => one.attempt.node))}::text[],
        ${plain(order.map(one => one.attempt.startedAt.getTime()))}::float8[]
      ) as t (
        task_id, downstream, attempt, status_code, answer, headers, address, warning, ms, node, started_ms
      )
      on conflict do nothing
      returning task_id, downstream
    ), resolved as (
      update alarm a set resolved_at = now()
      from moved m
      -- As in applyMoves: there is no alarm before a second try or a minute.
      where (m.attempt > 1 or m.created_at < now() - interval '1 minute')
        and a.task_id = m.task_id and a.downstream = m.downstream and a.resolved_at is null
    )
    select
      (select case when count(*) < ${sends.length} then coalesce(string_agg(task_id || downstream, ','), '') end
        from moved) as moved,
      (select case when count(*) < ${sends.length} then coalesce(string_agg(task_id || downstream, ','), '') end
        from written) as written`
  const moved = done.moved === null ? null : new Set(done.moved.split(','))
  const written = done.written === null ? null : new Set(done.written.split(','))
  return sends.map(({ move }): Applied => {
    const key = move.taskId + move.downstream
    if (!moved || moved.has(key)) return 'moved'
    return !written || written.has(key) ? 'stale' : 'zombie'
  })
}
