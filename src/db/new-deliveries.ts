// The deliveries of tasks that are stored by the same statement, the first claim included.
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

export interface NewDelivery {
  downstream: string
  /** The handler's `when` refused it: stored as DELETED, SKIPPED. */
  skipped: boolean
  /** Claim it in the same commit if it is due; else it waits for a dispatcher. */
  claim: boolean
  /** The process that claims it: the same for all deliveries of a statement. */
  owner?: number | null
  leaseMs: number
  tries: number
  needsReceipt: boolean
}

/** A delivery to store, with values of its task. `delayMs` counts from the database's now. */
export interface DeliveryRow extends NewDelivery {
  taskId: string
  deliverBefore: Date | null
  startAt: Date | null
  delayMs: number | null
  orderingKey: string | null
  /** Its task waits for others. */
  waits: boolean
}

type Unclaimed = 'WAITING' | 'BLOCKED'

const ownerOf = (rows: readonly DeliveryRow[]): number | null => rows.find(row => row.claim)?.owner ?? null

/** The CTE `stored_deliveries`: see `insertDeliveriesSql`. */
export const storedDeliveriesCte = (
  sql: Sql,
  rows: readonly DeliveryRow[],
  unclaimed: Unclaimed
) => sql` stored_deliveries as (
      ${insertDeliveriesSql(sql, rows, unclaimed)}
    )`

/**
 * Stores the deliveries of the tasks in the CTE `stored`, without an orderingKey. `unclaimed`: the phase of deliveries that are not
 * claimed at once. `(… in (select …)) is true` is a look-up in a hash; a join of the two lists would cost their product.
 */
export const insertDeliveriesSql = (sql: Sql, rows: readonly DeliveryRow[], unclaimed: Unclaimed) => sql`
      insert into delivery (
        task_id, downstream, status, phase, next_action_at, attempt, tries_left, lost, round_from,
        needs_receipt, deliver_before, reason, created_at, updated_at, owner
      )
      select task_id, downstream, case when skipped then -1 else 0 end, phase,
        case phase
          when 'IN_FLIGHT' then now() + lease_ms * interval '1 ms'
          when 'WAITING' then greatest(now(), least(start_at, deliver_before))
          when 'BLOCKED' then coalesce(deliver_before, '9999-12-31Z')
        end,
        case phase when 'IN_FLIGHT' then 1 else 0 end,
        case phase when 'IN_FLIGHT' then tries - 1 else tries end,
        0, 1, needs_receipt, deliver_before, case when skipped then 'SKIPPED' end, now(), now(),
        case phase when 'IN_FLIGHT' then ${ownerOf(rows)}::int end
      from (
        select task_id, downstream, skipped, lease_ms, tries, needs_receipt, deliver_before,
          coalesce(start_at, now() + delay_ms * interval '1 ms', now()) as start_at,
          case
            when skipped then null
            when claim and coalesce(start_at, now() + delay_ms * interval '1 ms', now()) <= now() then 'IN_FLIGHT'
            else ${unclaimed}::text
          end as phase
        from unnest(
          ${plainArray(rows.map(row => row.taskId))}::uuid[], ${textArray(rows.map(row => row.downstream))}::text[],
          ${plainArray(rows.map(row => row.skipped))}::boolean[],
          ${plainArray(rows.map(row => row.claim))}::boolean[],
          ${plainArray(rows.map(row => row.leaseMs))}::float8[],
          ${plainArray(rows.map(row => row.tries))}::int[],
          ${plainArray(rows.map(row => row.needsReceipt))}::boolean[],
          ${textArray(rows.map(row => row.deliverBefore?.toISOString()))}::timestamptz[],
          ${textArray(rows.map(row => row.startAt?.toISOString()))}::timestamptz[],
          ${plainArray(rows.map(row => row.delayMs))}::float8[]
        ) as w (
          task_id, downstream, skipped, claim, lease_ms, tries, needs_receipt, deliver_before, start_at, delay_ms
        )
      ) w
      where (task_id in (select id from stored)) is true
      returning task_id, downstream, phase`

/**
 * The same if some deliveries have an orderingKey. All statements lock the keys in the same order, until they commit: so positions are
 * in the order of commits, and in one statement in the order of `rows`. No position is below the time in µs, so that those of a key never
 * decrease, although the key was removed or the database was restored.
 */
export const storedDeliveriesInOrder = (
  sql: Sql,
  rows: readonly DeliveryRow[]
) => sql` wanted as materialized (
      select *, coalesce(start_at, now() + delay_ms * interval '1 ms', now()) as start,
        row_number() over (partition by downstream, ordering_key order by ord) as nth
      from (
        select task_id, downstream, skipped, claim, lease_ms, tries, needs_receipt, deliver_before, start_at, delay_ms, waits, ord,
          -- What is skipped has no turn.
          case when not skipped then ordering_key end as ordering_key
        from unnest(
          ${plainArray(rows.map(row => row.taskId))}::uuid[], ${textArray(rows.map(row => row.downstream))}::text[],
          ${plainArray(rows.map(row => row.skipped))}::boolean[],
          ${plainArray(rows.map(row => row.claim))}::boolean[],
          ${plainArray(rows.map(row => row.leaseMs))}::float8[],
          ${plainArray(rows.map(row => row.tries))}::int[],
          ${plainArray(rows.map(row => row.needsReceipt))}::boolean[],
          ${textArray(rows.map(row => row.deliverBefore?.toISOString()))}::timestamptz[],
          ${textArray(rows.map(row => row.startAt?.toISOString()))}::timestamptz[],
          ${plainArray(rows.map(row => row.delayMs))}::float8[],
          ${textArray(rows.map(row => row.orderingKey))}::text[],
          ${plainArray(rows.map(row => row.waits))}::boolean[]
        ) with ordinality as w (
          task_id, downstream, skipped, claim, lease_ms, tries, needs_receipt, deliver_before, start_at, delay_ms,
          ordering_key, waits, ord
        )
        where (task_id in (select id from stored)) is true
      ) w
    ), keys as (
      insert into ordering (downstream, ordering_key, next, head)
      select downstream, ordering_key, start + n, start
      from (
        select downstream, ordering_key, count(*) as n, (extract(epoch from now()) * 1000000)::bigint as start
        from wanted
        where ordering_key is not null
        group by downstream, ordering_key
      ) k
      order by downstream, ordering_key
      on conflict (downstream, ordering_key) do update set
        next = greatest(ordering.next, excluded.head) + excluded.next - excluded.head,
        head = coalesce(ordering.head, greatest(ordering.next, excluded.head))
      returning downstream, ordering_key, next, head
    ), placed as (
      select w.*, p.position,
        case
          when skipped then null
          when waits or p.position <> k.head then 'BLOCKED'
          when claim and start <= now() then 'IN_FLIGHT'
          else 'WAITING'
        end as phase
      from (select *, count(*) over (partition by downstream, ordering_key) as n from wanted) w
      left join keys k on k.downstream = w.downstream and k.ordering_key = w.ordering_key
      cross join lateral (select k.next - n + nth - 1 as position) p
    ), stored_deliveries as (
      insert into delivery (
        task_id, downstream, status, phase, next_action_at, attempt, tries_left, lost, round_from,
        needs_receipt, ordering_key, position, deliver_before, reason, created_at, updated_at, owner
      )
      select task_id, downstream, case when skipped then -1 else 0 end, phase,
        case phase
          when 'IN_FLIGHT' then now() + lease_ms * interval '1 ms'
          when 'WAITING' then greatest(now(), least(start, deliver_before))
          when 'BLOCKED' then coalesce(deliver_before, '9999-12-31Z')
        end,
        case phase when 'IN_FLIGHT' then 1 else 0 end,
        case phase when 'IN_FLIGHT' then tries - 1 else tries end,
        0, 1, needs_receipt, ordering_key, position, deliver_before, case when skipped then 'SKIPPED' end, now(), now(),
        case phase when 'IN_FLIGHT' then ${ownerOf(rows)}::int end
      from placed
      returning task_id, downstream, phase, position
    )`

/** The place of a delivery in its orderingKey. */
export interface Place {
  position: number
  isBlocked: boolean
}

/** The column that `placesOf` reads, for a statement with storedDeliveriesInOrder. */
export const placesColumn = (sql: Sql) => sql`,
      (select string_agg(task_id || ' ' || downstream || ' ' || position || ' ' || phase, ',')
        from stored_deliveries where position is not null) as places`

/** By taskId and downstream. */
export function placesOf(text: string | null | undefined): Map<string, Place> {
  const places = new Map<string, Place>()
  for (const place of text?.split(',') ?? []) {
    const [taskId = '', downstream = '', position = '', phase] = place.split(' ')
    places.set(taskId + downstream, { position: Number(position), isBlocked: phase === 'BLOCKED' })
  }
  return places
}
