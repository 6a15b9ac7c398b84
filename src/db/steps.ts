import { plainArray } from './arrays.ts'
import { insertDeliveriesSql } from './new-deliveries.ts'
import { endingHalf, lockingHalves } from './prepared.ts'
import type { Sql } from './pool.ts'
import {
  deliveriesOf,
  insertDeliveriesCte,
  insertedOf,
  insertTasksSql,
  resolveConflicts,
  resultSelect,
  type Done,
  type InsertResult,
  type NewTask,
  type NewSteps
} from './tasks.ts'

/**
 * A task with the tasks of its steps, in one statement: all of them or none. The first task is new, or was prepared and is
 * committed here. One result for it; if the steps are not in sequence, one for each of the others too.
 */
export async function insertSteps(sql: Sql, first: NewTask, steps: NewSteps): Promise<InsertResult[]> {
  const { tasks, inSequence } = steps
  const all = [first, ...tasks]
  const going = inSequence ? [first] : all
  const ended = first.committed
  const [done] = await sql<[Done]>`
    with ${ended ? sql`${lockingHalves(sql, [ended.seen])}, ` : sql``}first as (
      ${ended ? activating(sql, first) : insertTasksSql(sql, [first], 'ACTIVE')}
    ), others as (
      ${insertTasksSql(sql, tasks, 'ACTIVE', sql`where exists (select from first)`)}
    ), stored as (
      select id from first union all select id from others
    ),${ended ? sql` ${endingHalf(sql, ended.by, 'COMMITTED')},` : sql``}${insertDeliveriesCte(sql, going)}, blocked as (
      ${insertDeliveriesSql(sql, deliveriesOf(inSequence ? tasks : []), 'BLOCKED')}
    ), waiting as (
      insert into dependency (task_id, after_id)
      select task_id, after_id
      from unnest(
        ${plainArray(inSequence ? tasks.map(task => task.id) : [])}::uuid[],
        ${plainArray(inSequence ? tasks.map((_, at) => all[at]?.id) : [])}::uuid[]
      ) as w (task_id, after_id)
      where (task_id in (select id from stored)) is true
    )
    ${resultSelect(sql, all)}`
  const inserted = insertedOf(done, going)
  if (!ended) return resolveConflicts(sql, going, inserted)
  return inserted.map(one => one ?? { kind: 'known', content: null })
}

/** Updates nothing if it is not in `locked`. */
const activating = (sql: Sql, { id, delayMs }: NewTask) => sql`
      update task set state = 'ACTIVE',
        deliver_start_time = coalesce(deliver_start_time, now() + ${delayMs}::float8 * interval '1 ms')
      where id = ${id} and (id in (select id from locked)) is true
      returning id`
