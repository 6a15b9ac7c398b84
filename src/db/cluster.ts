import { plainArray, textArray } from './arrays.ts'
import type { AlarmChannels, node, YieldedDownstream } from './cluster-tables.ts'
import { since } from './deliveries.ts'
import { actor } from './audit.ts'
import { isLive } from './owners.ts'
import type { Sql } from './pool.ts'
import type { Row } from './schema.ts'
import type { Actor } from '../domain/types.ts'
import { present } from '../domain/optional-members.ts'

/** The facts that a process publishes about itself. Facts that must agree are compared (see `disagreements`). */
export interface NodeFacts {
  id: string
  roles: string
  version: string
  /** Fingerprints: of SECRET, then of SECRET_PREVIOUS where there is one. */
  secrets?: readonly string[]
  queue?: string
  handlers?: string
  /** What it has a handler for, as `handlesEntry` writes it. Undefined: as before. */
  handles?: readonly string[]
  /** The alarm channels of a dispatcher. Undefined: no dispatcher, or an older version. */
  channels?: AlarmChannels
  /** When its worker reached each downstream last, ms since 1970 by the database's clock. */
  reached?: Readonly<Record<string, number>>
  yielded?: readonly YieldedDownstream[]
}

/** An entry of `node.handles`: a messageCode and one downstream of its handler. Neither name holds a space. */
export const handlesEntry = (messageCode: string, downstream: string): string =>
  `${messageCode} ${downstream}`

/**
 * Records that this process lives. Removes processes that have been silent for an hour. False: the row lacks `handles`, since another
 * process has removed it.
 */
export async function writeNode(sql: Sql, node: NodeFacts): Promise<boolean> {
  const {
    id,
    roles,
    version,
    secrets,
    queue = null,
    handlers = null,
    handles,
    channels = null,
    reached = {},
    yielded = []
  } = node
  const [row] = await sql<[{ isWhole: boolean }]>`
    with gone as (delete from node where seen_at < now() - interval '1 hour')
    insert into node (id, roles, version, seen_at, secrets, queue, handlers, handles, channels, reached, yielded)
    values (${id}, ${roles}, ${version}, now(), ${secrets ? textArray(secrets) : null}::text[], ${queue}, ${handlers},
      ${handles ? textArray(handles) : null}::text[], ${channels && sql.json(channels as never)}::json, ${sql.json(reached)}, ${sql.json(yielded as never)})
    on conflict (id) do update set roles = excluded.roles, version = excluded.version, seen_at = now(),
      secrets = excluded.secrets, queue = excluded.queue, handlers = excluded.handlers,
      -- Only the first writing of a process brings them.
      handles = coalesce(excluded.handles, node.handles), channels = excluded.channels, reached = excluded.reached, yielded = excluded.yielded
    returning handles is not null as "isWhole"`
  return row.isWhole
}

/** The processes that live. */
export async function liveNodes(sql: Sql): Promise<NodeFacts[]> {
  const rows = await sql<
    Pick<Row<typeof node>, 'id' | 'roles' | 'version' | 'secrets' | 'queue' | 'handlers' | 'channels'>[]
  >`
    select id, roles, version, secrets, queue, handlers, channels from node
    where ${sql.unsafe(isLive)} order by id`
  return rows.map(({ id, roles, version, secrets, queue, handlers, channels }) => ({
    id,
    roles,
    version,
    ...present('secrets', secrets),
    ...present('queue', queue),
    ...present('handlers', handlers),
    ...present('channels', channels)
  }))
}

/** The messageCodes that other live processes with this role have a handler for. */
export async function codesOfOthers(
  sql: Sql,
  node: string,
  role: 'api' | 'dispatcher'
): Promise<Set<string>> {
  const rows = await sql<{ code: string }[]>`
    select distinct split_part(unnest(handles), ' ', 1) as code from node
    where id <> ${node} and roles like ${`%${role}%`} and ${sql.unsafe(isLive)}`
  return new Set(rows.map(row => row.code))
}

/** The alarm channels of all dispatchers that were seen in the last minute. Not complete: an older version does not say which it has. */
export async function liveChannels(sql: Sql): Promise<{ known: AlarmChannels; isComplete: boolean }> {
  const rows = await sql<Pick<Row<typeof node>, 'channels'>[]>`
    select channels from node where roles like '%dispatcher%' and seen_at > now() - interval '1 minute' order by id desc`
  const all = rows.map(({ channels }) => channels)
  return { known: Object.assign({}, ...all) as AlarmChannels, isComplete: !all.includes(null) }
}

/** Removes this process, so that the others take over its share at once. */
export async function removeNode(sql: Sql, id: string): Promise<void> {
  await sql`delete from node where id = ${id}`
}

/** The roles of all processes that live, each once. */
export async function liveRoles(sql: Sql): Promise<string[]> {
  const rows = await sql<{ role: string }[]>`
    select distinct unnest(string_to_array(roles, ',')) as role from node
    where ${sql.unsafe(isLive)} order by 1`
  return rows.map(row => row.role)
}

/** The state that every process reads once a second. */
interface ClusterState {
  now: Date
  /** The database is read-only: it is a replica, or set so. */
  readOnly: boolean
  workers: number
  dispatchers: number
  /** Downstreams that are paused. */
  paused: Set<string>
  /** By downstream: limits that an operator has set. Null: the handler's. */
  limits: Map<string, SetLimits>
  /** By downstream: when another worker reached it last, ms since 1970. */
  reachedByOthers: Map<string, number>
  /** Downstreams at which another worker starts nothing until it knows whether others reach them. */
  doubtedByOthers: string[]
  /** Downstream to its oldest open clock that has run out, ms since 1970. */
  oldest: Map<string, number>
  /** Downstream to the age in ms of its oldest due and unclaimed delivery; none due: no entry. */
  oldestDueMs: Map<string, number>
  /** Some task waits for another. */
  dependents: boolean
  /** The next delivery of some orderingKey may run. */
  promotions: boolean
  /** Keys whose head is FAILED, counted up to 10,000. */
  heldKeys: number
}

/** Limits of a downstream that an operator has set. Null: the handler's. */
export interface SetLimits {
  concurrency: number | null
  perSecond: number | null
}

/** `node`: this process, whose own sends do not count as those of others. `from`: a downstream has no open clock before this. */
export async function readCluster(
  sql: Sql,
  downstreams: readonly string[],
  node = '',
  from: (downstream: string) => number | undefined = () => undefined
): Promise<ClusterState> {
  const [{ paused, limits, reached, doubted, oldest, ...state }] = await sql<
    [
      Pick<
        ClusterState,
        'now' | 'readOnly' | 'workers' | 'dispatchers' | 'dependents' | 'promotions' | 'heldKeys'
      > & {
        paused: string[] | null
        limits: Record<string, SetLimits> | null
        reached: Record<string, number> | null
        doubted: string[] | null
        oldest: Record<string, [at: number, phase: string]> | null
      }
    ]
  >`
    select now() as now, current_setting('transaction_read_only')::boolean as "readOnly",
      (select count(*) from node where roles like '%worker%' and ${sql.unsafe(isLive)})::int as workers,
      (select count(*) from node where roles like '%dispatcher%' and ${sql.unsafe(isLive)})::int as dispatchers,
      (select array_agg(name) from downstream where paused_at is not null) as paused,
      (select json_object_agg(name, json_build_object('concurrency', concurrency, 'perSecond', per_second))
        from downstream where concurrency is not null or per_second is not null) as limits,
      (select json_object_agg(name, at) from (
        select r.key as name, max(r.value::float8) as at from node cross join jsonb_each_text(reached) r
        where id <> ${node} and ${sql.unsafe(isLive)} group by r.key) r) as reached,
      (select array_agg(distinct y->>'downstream') from node cross join jsonb_array_elements(yielded) y
        where id <> ${node} and ${sql.unsafe(isLive)} and (y->>'isDoubt')::boolean) as doubted,
      exists (select from dependency where done_at is null) as dependents,
      exists (select from promotion) as promotions,
      (select count(*) from (select from ordering where held_at is not null limit 10000) o)::int as "heldKeys",
      (select json_object_agg(o.name, json_build_array(floor(extract(epoch from d.next_action_at) * 1000), d.phase))
        from unnest(
          ${textArray(downstreams)}::text[], ${plainArray(downstreams.map(from))}::float8[]
        ) as o (name, from_ms) cross join lateral (
          select w.next_action_at, w.phase
          from delivery w
          where w.status = 0 and w.downstream = o.name and w.next_action_at <= now() and w.next_action_at >= ${since(sql)}
          order by w.next_action_at
          limit 1
        ) d) as oldest`
  const clocks = Object.entries(oldest ?? {})
  return {
    ...state,
    paused: new Set(paused ?? []),
    limits: new Map(Object.entries(limits ?? {})),
    reachedByOthers: new Map(Object.entries(reached ?? {})),
    doubtedByOthers: doubted ?? [],
    oldest: new Map(clocks.map(([name, [at]]) => [name, at])),
    oldestDueMs: new Map(
      clocks.flatMap(([name, [at, phase]]) =>
        phase === 'WAITING' ? [[name, Math.max(0, state.now.getTime() - at)]] : []
      )
    )
  }
}

/** Pausing is a row, so every process sees it within a second. Audited, unless it is paused already. */
export async function pause(sql: Sql, name: string, who: Actor): Promise<void> {
  await sql`
    with paused as (
      insert into downstream (name, paused_at, paused_by) values (${name}, now(), ${who.name})
      on conflict (name) do update set paused_at = now(), paused_by = excluded.paused_by
        where downstream.paused_at is null
      returning name
    )
    insert into audit (who, key_id, what, target) select ${actor(sql, who)}, 'downstream.pause', name from paused`
}

/** Audited, unless it is not paused. */
export async function resume(sql: Sql, name: string, who: Actor): Promise<void> {
  await sql`
    with resumed as (
      update downstream set paused_at = null, paused_by = null
      where name = ${name} and paused_at is not null returning name
    )
    insert into audit (who, key_id, what, target) select ${actor(sql, who)}, 'downstream.resume', name from resumed`
}

/** Sets limits, which hold until they are set again. A missing member stays unchanged, null is the handler's limit. Audited. */
export async function setLimits(
  sql: Sql,
  name: string,
  limits: Partial<SetLimits>,
  who: Actor
): Promise<void> {
  const { concurrency = null, perSecond = null } = limits
  const [hasConcurrency, hasPerSecond] = ['concurrency' in limits, 'perSecond' in limits]
  await sql`
    with before as (
      select concurrency, per_second from downstream where name = ${name}
    ), changed as (
      insert into downstream (name, concurrency, per_second, limits_at, limits_by)
      values (${name}, ${concurrency}, ${perSecond}, now(), ${who.name})
      on conflict (name) do update set
        concurrency = case when ${hasConcurrency}::boolean then excluded.concurrency else downstream.concurrency end,
        per_second = case when ${hasPerSecond}::boolean then excluded.per_second else downstream.per_second end,
        limits_at = now(), limits_by = excluded.limits_by
      returning concurrency, per_second
    )
    insert into audit (who, key_id, what, target, detail)
    select ${actor(sql, who)}, 'downstream.limits', ${name}, jsonb_build_object(
      'before', (select jsonb_build_object('concurrency', concurrency, 'perSecond', per_second) from before),
      'after', jsonb_build_object('concurrency', concurrency, 'perSecond', per_second))
    from changed`
}
