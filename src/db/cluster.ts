import { textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

/** Says that this process lives; forgets the ones that have been silent for an hour. */
export async function heartbeat(
  sql: Sql,
  node: { id: string; roles: string; version: string }
): Promise<void> {
  await sql`
    with gone as (delete from node where seen_at < now() - interval '1 hour')
    insert into node (id, roles, version, seen_at) values (${node.id}, ${node.roles}, ${node.version}, now())
    on conflict (id) do update set roles = excluded.roles, version = excluded.version, seen_at = now()`
}

/** Says goodbye: the others share what it did at once. */
export async function removeNode(sql: Sql, id: string): Promise<void> {
  await sql`delete from node where id = ${id}`
}

/** The roles of all processes that live, each once. */
export async function liveRoles(sql: Sql): Promise<string[]> {
  const rows = await sql<{ role: string }[]>`
    select distinct unnest(string_to_array(roles, ',')) as role from node
    where seen_at > now() - interval '15 s' order by 1`
  return rows.map(row => row.role)
}

/** What every process looks at once a second. */
export interface ClusterState {
  now: Date
  /** It can be read only: a replica, or set so. */
  readOnly: boolean
  workers: number
  dispatchers: number
  /** Downstreams that are paused. */
  paused: Set<string>
  /** Downstream to the age in ms of its oldest due and unclaimed delivery; none due: no entry. */
  oldestDueMs: Map<string, number>
  /** Some task waits for another. */
  dependents: boolean
}

export async function readCluster(sql: Sql, downstreams: readonly string[]): Promise<ClusterState> {
  const [row] = await sql<
    [
      {
        now: Date
        read_only: boolean
        workers: number
        dispatchers: number
        paused: string[] | null
        due: Record<string, number> | null
        dependents: boolean
      }
    ]
  >`
    select now() as now, current_setting('transaction_read_only')::boolean as read_only,
      (select count(*) from node where roles like '%worker%' and seen_at > now() - interval '15 s')::int as workers,
      (select count(*) from node where roles like '%dispatcher%' and seen_at > now() - interval '15 s')::int as dispatchers,
      (select array_agg(name) from downstream where paused_at is not null) as paused,
      exists (select from dependency where done_at is null) as dependents,
      (select json_object_agg(o.name, extract(epoch from now() - d.next_action_at) * 1000)
        from unnest(${textArray(downstreams)}::text[]) as o (name) cross join lateral (
          select w.next_action_at, w.phase
          from delivery w
          where w.status = 0 and w.downstream = o.name and w.next_action_at <= now()
          order by w.next_action_at
          limit 1
        ) d where d.phase = 'WAITING') as due`
  return {
    now: row.now,
    readOnly: row.read_only,
    workers: row.workers,
    dispatchers: row.dispatchers,
    paused: new Set(row.paused ?? []),
    oldestDueMs: new Map(Object.entries(row.due ?? {})),
    dependents: row.dependents
  }
}

/** Pausing is a row, so every process sees it within a second. */
export async function pause(sql: Sql, name: string, who: string): Promise<void> {
  await sql`
    insert into downstream (name, paused_at, paused_by) values (${name}, now(), ${who})
    on conflict (name) do update set paused_at = coalesce(downstream.paused_at, now()),
      paused_by = coalesce(downstream.paused_by, excluded.paused_by)`
}

export async function resume(sql: Sql, name: string): Promise<void> {
  await sql`update downstream set paused_at = null, paused_by = null where name = ${name}`
}
