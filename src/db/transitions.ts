import { effects, stateBits, type Move, type State } from '../domain/transitions.ts'
import { fingerprint, firstLine } from '../domain/fingerprint.ts'
import { phases } from '../domain/types.ts'
import { raiseAgain } from './alarms.ts'
import { bytea, requestArrays, requestNames, type AttemptRow } from './attempt-rows.ts'
import { indexes, plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import type { receipt } from './schema.ts'

/** One row of `receipt`. `attempt` is the number in its token. */
export type ReceiptRow = Omit<typeof receipt.$inferSelect, 'id' | 'applied' | 'late' | 'createdAt'>

/** A move, with the attempt or the receipt that led to it. A receipt that moves nothing is only kept. */
export interface Completion {
  move: Move | null
  attempt?: AttemptRow
  receipt?: ReceiptRow
  /** For a delivered attempt, whose row exists already: the reason that no receipt came for it. */
  noReceipt?: string | undefined
}

/**
 * moved: the guard held and the row is written. late: the same, and it had been FAILED, as before each redelivery. stale: another caller was
 * faster, which is fine. recorded: stale, and this attempt has its row already: written by another process, or by a first write whose answer was lost.
 */
export type Applied = 'moved' | 'late' | 'stale' | 'recorded'

/** Whether it has changed the delivery. */
export const isMoved = (applied: Applied | 'unknown' | undefined): boolean =>
  applied === 'moved' || applied === 'late'

const bitOf = (state: State): number => stateBits([state])
const stateBitOfD = `(case d.phase
          ${phases.map(phase => `when '${phase}' then ${bitOf(phase)}`).join(' ')}
          else case d.status when 2 then ${bitOf('FAILED')} when 1 then ${bitOf('HANDLED')} else ${bitOf('DELETED')} end end)`

/** Receipts kept of one delivery; a downstream in a loop must not fill the disk. */
const receiptsKept = 20

/**
 * The only place that changes `delivery.status`, except for its narrow versions for successful sends (successful-sends.ts) and
 * plain receipts (receipts.ts). A claim (deliveries.ts) leaves it SENDING. One statement and one commit a batch:
 * guard by phase and attempt, move, attempt rows, alarms of failures, and the resolving of alarms that are no longer
 * true. A batch names a delivery once at most (the caller folds).
 */
export async function applyMoves(
  sql: Sql,
  completions: readonly Completion[],
  lockMs = 0,
  onWritten?: OnWritten
): Promise<Applied[]> {
  const numbered = completions.map((one, index) => ({ ...one, index }))
  // All statements lock rows in the same order, or two batches could wait for each other.
  const moving = numbered.filter(hasMove).sort((a, b) => byKey(a.move, b.move))
  const moves = moving.map(one => one.move)
  const tried = moving.filter(hasAttempt)
  const ordOf = new Map(moving.map((one, at) => [one.index, at + 1]))
  const received = numbered.filter(hasReceipt)
  const effect = moves.map(move => effects[move.name])
  const ids = plainArray(moves.map(move => move.taskId))
  // Only for moves with an orderingKey. Without them the statement is one of the hot path.
  const anew = moves.some(({ name, orderingKey }) => name === 'requeue' || (name === 'repeat' && orderingKey))
  // As long as the list of moves, or empty: the failure of a move is found by its ord.
  const isFailing = moving.some(one => one.move.name === 'fail')
  const failures = isFailing ? moving.map(one => (one.move.name === 'fail' ? failureOf(one) : undefined)) : []
  // A statement that names the table takes longer (see below), so it is named only if needed.
  const isMissing = moving.some(one => one.noReceipt !== undefined)
  const [done] = await sql<
    [{ at: number; moved: string | null; late: string | null; written: string | null }]
  >`
    with m as materialized (
      select * from unnest(
        ${ids}::uuid[], ${textArray(moves.map(move => move.downstream))}::text[],
        ${plainArray(moves.map(move => move.attempt))}::int[], ${plainArray(moves.map(fromBits))}::int[],
        ${plainArray(moves.map(move => move.name === 'receive'))}::boolean[],
        ${plainArray(moving.map(one => one.receipt !== undefined || one.move.name === 'receive'))}::boolean[],
        ${plainArray(moves.map(move => move.overdue ?? false))}::boolean[],
        ${plainArray(effect.map(e => e.status))}::int[], ${plainArray(effect.map(e => e.phase))}::text[],
        ${plainArray(moves.map(move => move.afterMs ?? 0))}::float8[],
        ${plainArray(effect.map(e => e.tries))}::int[], ${plainArray(effect.map(e => e.lost))}::int[],
        ${plainArray(moves.map(move => move.retryTimes))}::int[],
        ${plainArray(moves.map(move => move.reason))}::text[], ${plainArray(moves.map(move => move.handledBy))}::text[],
        ${plainArray(moves.map(move => move.name === 'sent' || move.name === 'handled'))}::boolean[],
        ${textArray(moves.map(move => move.by))}::text[], ${plainArray(moves.map(move => move.owner))}::int[]
      ) with ordinality as m (
        task_id, downstream, attempt, from_bits, any_of_round, of_round, overdue, status, phase, after_ms,
        tries, lost, tries_anew, reason, handled_by, delivered, by_operator, owner, ord
      )
      where ${waitsAtMost(sql, lockMs)}
    ), locked as materialized (
      select d.status as old_status, d.phase as old_phase, m.*
      from m join delivery d on d.task_id = m.task_id and d.downstream = m.downstream
      where case when m.any_of_round then m.attempt <= d.attempt else m.attempt = d.attempt end
        -- The number of an attempt stays when a new round begins.
        and (not m.of_round or m.attempt >= d.round_from)
        and m.from_bits & ${sql.unsafe(stateBitOfD)} <> 0
        and (not m.overdue or d.next_action_at + interval '0' <= now()
          and (m.reason is distinct from 'EXPIRED' or d.deliver_before <= now()))
        and (m.owner is null or coalesce(d.owner, 0) = m.owner)${
          anew ? sql` and (m.phase is distinct from 'BLOCKED' or d.position > 0)` : sql``
        }${
          moves.some(move => move.timely)
            ? sql` and ((${plainArray(moves.map(move => move.timely ?? false))}::boolean[])[m.ord] is false
          or d.deliver_before is null or d.deliver_before > now())`
            : sql``
        }
      order by d.task_id, d.downstream
      for no key update of d
    ), moved as (
      update delivery d set
        status = l.status,
        phase = l.phase,
        next_action_at = case l.phase
          -- Never in the past: the dispatcher looks only at clocks that ran out since its last look.
          when 'WAITING' then greatest(now(), least(now() + l.after_ms * interval '1 ms',
            case when l.tries_anew is null or d.deliver_before > now() then d.deliver_before end))
          when 'AWAITING_RECEIPT' then now() + l.after_ms * interval '1 ms'${
            anew
              ? sql` when 'BLOCKED' then coalesce(case when d.deliver_before > now() then d.deliver_before end, '9999-12-31Z')`
              : sql``
          }
        end,
        tries_left = coalesce(l.tries_anew, d.tries_left + l.tries),
        lost = case when l.tries_anew is null then d.lost + l.lost else 0 end,
        round_from = case when l.tries_anew is null then d.round_from else d.attempt + 1 end,
        round = case when l.tries_anew is null then d.round else coalesce(d.round, 1) + 1 end,
        deliver_before = case when l.tries_anew is null or d.deliver_before > now() then d.deliver_before end,
        reason = l.reason,
        delivered_at = case
          when l.tries_anew is not null then null
          when l.delivered then coalesce(d.delivered_at, now())
          else d.delivered_at end,
        handled_at = case when l.status = 1 then now() end,
        handled_by = l.handled_by,
        -- An older version claims without writing an owner: the last one must not stay.
        owner = null,
        updated_at = now(),
        updated_by = coalesce(l.by_operator, d.updated_by)${
          // A delivery that was HANDLED once has had its turn.
          anew
            ? sql`, position = case when l.old_status = 1 then -abs(d.position) else d.position end`
            : sql``
        }
      from locked l
      where d.task_id = l.task_id and d.downstream = l.downstream
      returning d.task_id, d.downstream, d.attempt, d.round_from, l.ord, l.old_status, l.old_phase, l.status, l.delivered,
        d.created_at, d.reason
    ), tried as (
      select * from unnest(
        ${plainArray(tried.map(row => row.move.taskId))}::uuid[], ${textArray(tried.map(row => row.move.downstream))}::text[],
        ${plainArray(tried.map(row => row.move.attempt))}::int[], ${plainArray(tried.map(row => row.attempt.outcome))}::text[],
        ${textArray(tried.map(row => row.attempt.reason))}::text[],
        ${plainArray(tried.map(row => row.attempt.statusCode))}::int[],
        ${textArray(tried.map(row => bytea(row.attempt.answer)))}::bytea[],
        ${textArray(tried.map(row => row.attempt.headers))}::text[],
        ${textArray(tried.map(row => row.attempt.address))}::text[],
        ${textArray(tried.map(row => row.attempt.warning))}::text[],
        ${plainArray(tried.map(row => row.attempt.ms))}::int[], ${textArray(tried.map(row => row.attempt.node))}::text[],
        ${plainArray(tried.map(row => row.attempt.startedAt.getTime()))}::float8[],
        ${plainArray(tried.map(row => row.attempt.alarm))}::text[],
        ${textArray(tried.map(row => row.attempt.messageId))}::text[], ${requestArrays(sql, tried)}
      ) as t (
        task_id, downstream, attempt, outcome, reason, status_code, answer, headers, address, warning,
        ms, node, started_ms, alarm, message_id, ${sql.unsafe(requestNames)}
      )
    ), written as (
      insert into attempt (
        task_id, downstream, attempt, outcome, reason, status_code, answer, headers, address, warning,
        ms, node, started_at, message_id, ${sql.unsafe(requestNames)}
      )
      select task_id, downstream, attempt, outcome, reason, status_code, answer, headers, address, warning,
        ms, node, to_timestamp(started_ms / 1000), message_id, ${sql.unsafe(requestNames)}
      from tried
      on conflict do nothing
      returning task_id, downstream
    )${
      isMissing
        ? sql`, missed as (
      update attempt a set reason = m.why
      from (select m.*, (${textArray(moving.map(one => one.noReceipt))}::text[])[m.ord] as why from moved m) m
      where m.why is not null and m.old_phase = 'AWAITING_RECEIPT' and a.reason is null
        and a.task_id = m.task_id and a.downstream = m.downstream and a.attempt = m.attempt
    )`
        : sql``
    }, failed as (
      insert into failure (task_id, downstream, attempt, message_code, fingerprint, reason, status_code, line)
      select m.task_id, m.downstream, m.attempt, t.message_code,
        (${plainArray(failures.map(one => one?.fingerprint))}::text[])[m.ord], m.reason,
        (${plainArray(failures.map(one => one?.statusCode))}::int[])[m.ord],
        (${textArray(failures.map(one => one?.line))}::text[])[m.ord]
      from moved m cross join lateral (select message_code from task where id = m.task_id offset 0) t
      where m.status = 2
    ), alarmed as (
      insert into alarm (task_id, downstream, attempt, kind, reason)
      select task_id, downstream, attempt, 'FAILED', null from moved where status = 2
      union all
      select m.task_id, m.downstream, m.round_from, t.alarm, t.reason
      from tried t join moved m on m.task_id = t.task_id and m.downstream = t.downstream
      where t.alarm is not null
      ${raiseAgain(sql)}
    ), resolved as (
      update alarm a set resolved_at = now()
      from moved m left join tried t on t.task_id = m.task_id and t.downstream = m.downstream
      -- Most deliveries have no alarm. So look for one only after a second try or a minute.
      where (m.old_status = 2 or m.old_phase in ('BLOCKED', 'WAITING') or m.status = -1 or m.attempt > 1 or m.created_at < now() - interval '1 minute')
        -- Whatever was wrong is over once it is delivered, at its end, or in a new round; whoever sends has a handler.
        and (m.old_status = 2 or m.delivered or m.status in (1, -1) or t.task_id is not null and a.kind = 'NO_HANDLER'
          or m.old_phase = 'BLOCKED' and a.kind = 'DEPENDENCY_FAILED')
        and a.task_id = m.task_id and a.downstream = m.downstream and a.resolved_at is null
    ), kept as (
      insert into receipt (task_id, downstream, attempt, result, reason, data, applied, late, remote)
      select r.task_id, r.downstream, r.attempt, r.result, r.reason, r.data, r.applied, r.late, r.remote
      from (
        select r.*, m.ord is not null as applied, coalesce(m.old_status = 2, false) as late,
          coalesce(m.status <> 0, false) as ended,
          row_number() over (partition by r.task_id, r.downstream order by r.nth) as nth_of_delivery
        from unnest(
          ${plainArray(received.map(one => one.receipt.taskId))}::uuid[],
          ${textArray(received.map(one => one.receipt.downstream))}::text[],
          ${plainArray(received.map(one => one.receipt.attempt))}::int[],
          ${plainArray(received.map(one => one.receipt.result))}::text[],
          ${textArray(received.map(one => one.receipt.reason))}::text[],
          ${textArray(received.map(one => one.receipt.data))}::text[],
          ${textArray(received.map(one => one.receipt.remote))}::text[],
          ${plainArray(received.map(one => ordOf.get(one.index)))}::int[]
        ) with ordinality as r (task_id, downstream, attempt, result, reason, data, remote, ord, nth)
        left join moved m on m.ord = r.ord
        -- Of a move that was overtaken the receipt is not kept: its caller looks again and comes back with it.
        where r.ord is null or m.ord is not null
      ) r
      where nth_of_delivery + ${
        // A statement that names the table opens all of its partitions, which costs more than the rest of a small batch.
        received.length === 0
          ? sql`0`
          : sql`(select count(*) from receipt k where k.task_id = r.task_id and k.downstream = r.downstream)`
      } <= ${receiptsKept} or ended -- The one that ended it is the proof: no flood before it may push it out.
    )
    select ${statementTime(sql)} as at, (select string_agg(ord::text, ',') from moved) as moved,
      (select string_agg(ord::text, ',') from moved where old_status = 2) as late,
      (select string_agg(m.ord::text, ',') from written w
        join m on m.task_id = w.task_id and m.downstream = w.downstream) as written`
  onWritten?.(done.at)
  const moved = new Set(indexes(done.moved))
  const late = new Set(indexes(done.late))
  const written = new Set(indexes(done.written))
  const applied = completions.map((): Applied => 'stale')
  moving.forEach((one, at) => {
    if (moved.has(at)) applied[one.index] = late.has(at) ? 'late' : 'moved'
    else if (one.attempt && !written.has(at)) applied[one.index] = 'recorded'
  })
  return applied
}

/** Called with the time of a statement: that of its moves. ms since 1970, by the database's clock. */
export type OnWritten = (at: number) => void

export const statementTime = (sql: Sql) => sql`extract(epoch from now())::float8 * 1000`

/**
 * True. The statement waits at most this long for a row that another session has locked, then it fails with 55P03; 0: as long as it
 * may run. Tables are locked before it begins: for a migration it waits as before.
 */
export const waitsAtMost = (sql: Sql, lockMs: number) =>
  sql`(select set_config('lock_timeout', ${`${lockMs}`}, true)) is not null`

/** The facts and fingerprint of a failure: by the answer, or else by the error or the reason of the receipt. */
function failureOf({ move, attempt, receipt }: Completion & { move: Move }) {
  const facts = {
    downstream: move.downstream,
    reason: move.reason ?? '',
    statusCode: attempt?.statusCode ?? null,
    line: firstLine(
      attempt?.answer ? Buffer.from(attempt.answer).toString() : (attempt?.reason ?? receipt?.reason)
    )
  }
  return { ...facts, fingerprint: fingerprint(facts) }
}

const stillBits = {
  SENDING: stateBits(phases),
  FAILED: stateBits(['FAILED']),
  WAITING: stateBits(['WAITING']),
  IN_FLIGHT: stateBits(['IN_FLIGHT']),
  AWAITING_RECEIPT: stateBits(['AWAITING_RECEIPT']),
  BLOCKED: stateBits(['BLOCKED'])
}
const fromBits = ({ name, ifStill }: Move): number =>
  effects[name].fromBits & (ifStill ? stillBits[ifStill] : ~0)

const hasMove = <T extends Completion>(one: T): one is T & { move: Move } => one.move !== null
const hasAttempt = <T extends Completion>(one: T): one is T & { attempt: AttemptRow } =>
  one.attempt !== undefined
const hasReceipt = <T extends Completion>(one: T): one is T & { receipt: ReceiptRow } =>
  one.receipt !== undefined

function byKey(a: Move, b: Move): number {
  if (a.taskId !== b.taskId) return a.taskId < b.taskId ? -1 : 1
  return a.downstream < b.downstream ? -1 : a.downstream > b.downstream ? 1 : 0
}
