import { archiveTasks, type Archive } from './archive.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import { highestUuid, lowestUuid } from '../domain/ids.ts'

/**
 * Removes up to `limit` tasks that are older than `days` and have rested as long, with all their rows, the oldest first. `after` is where the last
 * call stopped; null starts over. `next` null: the end is reached.
 * Attempts and receipts of tasks from `droppedFrom` on stay: they are dropped with their day.
 */
export async function removeOld(
  sql: Sql,
  days: number,
  limit: number,
  after: string | null,
  archive?: Archive,
  droppedFrom = highestUuid
): Promise<{ removed: number; next: string | null }> {
  const [found] = await sql<[{ ids: string[]; looked: number; next: string | null }]>`
    with looked as materialized (
      select id, task_no, state from task
      where id > ${after ?? lowestUuid}::uuid
        -- uuid v7 begins with its time: a bound on the key, so that the walk ends where the young ones begin
        and id < (lpad(to_hex(greatest(0, extract(epoch from now() - ${days}::int * interval '1 day') * 1000)::bigint), 12, '0')
          || repeat('0', 20))::uuid
      order by id
      limit ${limit}
    )
    select array(select l.id::text from looked l where ${atRest(sql, days)} order by l.id) as ids,
      (select count(*) from looked)::int as looked, (select id::text from looked order by id desc limit 1) as next`
  const next = found.looked < limit ? null : found.next
  // A task that stays because of a lock must not be archived at each walk.
  const ids = archive && found.ids.length > 0 ? await unlockedTasks(sql, found.ids) : found.ids
  if (ids.length === 0) return { removed: 0, next }
  const seen = archive && (await archiveTasks(sql, ids, archive))
  return { removed: await remove(sql, { days, droppedFrom }, ids, seen), next }
}

/** The condition that nobody has locked a delivery of the task `id`: `locked` holds those that could be locked. */
const isUnlocked = (sql: Sql) => sql`
  not exists (
    select from delivery d
    where d.task_id = id and (d.task_id, d.downstream) not in (select l.task_id, l.downstream from locked l)
  )`

/** Those of these tasks of which nobody has locked a delivery. */
async function unlockedTasks(sql: Sql, ids: readonly string[]): Promise<string[]> {
  const [row] = await sql<[{ ids: string[] }]>`
    with locked as materialized (
      select d.task_id, d.downstream from delivery d
      where d.task_id = any(${plainArray(ids)}::uuid[])
      for no key update skip locked
    )
    select array(select id::text from unnest(${plainArray(ids)}::uuid[]) as asked (id) where ${isUnlocked(sql)} order by id) as ids`
  return row.ids
}

/** The condition that a task `l`, older than `days`, may be removed. */
const atRest = (sql: Sql, days: number) => sql`
  -- A PREPARED task that nobody ended stays, however old it is.
  l.state <> 'PREPARED' and not exists (select from delivery d where d.task_id = l.id and ${isActive(sql, days)})
    and not exists (
      select from prepared p where p.task_id = l.id and p.ended_at > now() - ${days}::int * interval '1 day'
    )
    -- No task waits for it, perhaps for its redelivery. A task that is named in an after at this very moment is removed all the
    -- same: its dependent then ends as after a deletion, with an alarm.
    and not exists (select from dependency x where x.after_id = l.id and x.done_at is null)
    -- A FAILED delivery that is in order holds its key, or will hold it when its turn comes.
    and not exists (select from delivery d where d.task_id = l.id and d.status = 2 and d.position > 0)
    -- It was restored from the archive: its days begin anew.
    and not exists (
      select from audit x
      where x.target = l.task_no and x.what = 'task.restored' and x.at > now() - ${days}::int * interval '1 day'
    )`

/** The delivery `d` has not ended, or ended late: a task may start a year after its POST. Operators and producers need its days, too. */
const isActive = (sql: Sql, days: number) =>
  sql`(d.status = 0 or d.updated_at > now() - ${days}::int * interval '1 day')`

/** `seen`: removes only tasks that are unchanged since they were archived; the others are archived again at the next walk. */
async function remove(
  sql: Sql,
  { days, droppedFrom }: { days: number; droppedFrom: string },
  ids: readonly string[],
  seen: readonly (string | undefined)[] | undefined
): Promise<number> {
  const [row] = await sql<[{ removed: number }]>`
    with asked as materialized (
      select * from unnest(
        ${plainArray(ids)}::uuid[], ${textArray(seen?.map(one => one ?? 'gone') ?? [])}::text[]
      ) as a (id, seen)
    ), resting as materialized (
      select l.id, a.seen from asked a join task l on l.id = a.id
      where ${atRest(sql, days)}
    ), locked as materialized (
      -- As they are now and not in our snapshot: one that is redelivered at this very moment must stay. One that somebody has locked
      -- waits for a later walk, and holds up no other task.
      select d.task_id, d.downstream, d.status, d.updated_at
      from delivery d
      where d.task_id in (select id from resting)
      order by d.task_id, d.downstream
      for update skip locked
    ), old as materialized (
      select id from resting r
      where ${isUnlocked(sql)}
        and not exists (select from locked d where d.task_id = r.id and ${isActive(sql, days)})
        and (r.seen is null or r.seen = concat_ws(' ',
          (select max(extract(epoch from d.updated_at)) from locked d where d.task_id = r.id),
          (select count(*) from receipt k where k.task_id = r.id)))
    ), receipts as (delete from receipt using old where receipt.task_id = old.id and receipt.task_id < ${droppedFrom}::uuid),
    attempts as (delete from attempt using old where attempt.task_id = old.id and attempt.task_id < ${droppedFrom}::uuid),
    failures as (delete from failure using old where failure.task_id = old.id),
    halves as (delete from prepared using old where prepared.task_id = old.id),
    alarms as (delete from alarm using old where alarm.task_id = old.id),
    dependencies as (delete from dependency using old where dependency.task_id = old.id),
    deliveries as (delete from delivery using old where delivery.task_id = old.id),
    tasks as (delete from task using old where task.id = old.id returning 1)
    select count(*)::int as removed from tasks`
  return row.removed
}
