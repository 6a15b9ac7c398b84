// The processes that live, as others see them: each has a number, by which it owns its claims, and a beat.
import { plainArray } from './arrays.ts'
import { connect, type PostgresClient } from './pool.ts'
import { ownSessionSettings } from '../runtime/session-settings.ts'

/** The facts about a process, stored when it gets its number. */
interface OwnerFacts {
  node: string
  isWorker: boolean
  process: string | null
}

/** The time after which a process that has not written its row of `node` does not live, in SQL. */
const liveFor = "interval '15 s'"

/** The condition on `node` for a process that lives, in SQL. */
export const isLive = `seen_at > now() - ${liveFor}`

/** A process whose last beat is more than a second old. */
export interface SilentOwner {
  number: number
  process: string | null
  silentMs: number
}

/** A process that counts as dead from now on. The deliveries that it owned need a decision. */
export interface DeadOwner {
  number: number
  node: string
  /** It may have sent the deliveries that it owned. */
  isWorker: boolean
}

/** Longer than a beat takes, shorter than a statement of a pool: if the server is silent, beats move to another connection. */
const silenceSeconds = 3

/** A connection only for beats: they wait for no pool and for no disk. */
export const openBeats = (url: string): PostgresClient =>
  connect(url, {
    max: 1,
    max_lifetime: null,
    fetch_types: false,
    connect_timeout: 2,
    silence_timeout: silenceSeconds,
    backoff: () => 0.25,
    connection: {
      ...ownSessionSettings,
      application_name: 'ackbox beat',
      statement_timeout: silenceSeconds * 1_000,
      synchronous_commit: 'off'
    }
  })

/** A number that no process has had. It is on disk before any claim by it, since claims commit later. */
export async function addOwner(
  sql: PostgresClient,
  { node, isWorker, process }: OwnerFacts
): Promise<number> {
  const [row] = await sql<{ number: number }[]>`
    insert into owner (node, is_worker, process) values (${node}, ${isWorker}, ${process}) returning number`
  if (!row) throw new Error('PostgreSQL gave no number')
  return row.number
}

/** Undefined: this process counts as dead. Else the others that have been silent for longer than a second. */
export async function beat(sql: PostgresClient, number: number): Promise<SilentOwner[] | undefined> {
  const [row] = await sql<{ lives: boolean; silent: SilentOwner[] | null }[]>`
    with beaten as (update owner set seen_at = now() where number = ${number} returning number)
    select exists (select from beaten) as lives, (
      select json_agg(json_build_object(
        'number', number, 'process', process, 'silentMs', extract(epoch from now() - seen_at) * 1000
      ))
      from owner where number <> ${number} and seen_at < now() - interval '1 s'
    ) as silent`
  return row?.lives ? (row.silent ?? []) : undefined
}

/** Declares each owner dead that is still silent for `silentMs`; only one caller gets it. Its process no longer counts as a worker. */
export async function declareDead(
  sql: PostgresClient,
  owners: readonly { number: number; silentMs: number }[]
): Promise<DeadOwner[]> {
  return await sql<DeadOwner[]>`
    with dead as (
      delete from owner o
      using unnest(
        ${plainArray(owners.map(({ number }) => number))}::int[], ${plainArray(owners.map(({ silentMs }) => silentMs))}::float8[]
      ) as d (number, silent_ms)
      where o.number = d.number and o.seen_at < now() - d.silent_ms * interval '1 ms'
      returning o.number, o.node, o.is_worker
    ), gone as (
      update node set seen_at = least(seen_at, now() - ${sql.unsafe(liveFor)}) where id in (select node from dead)
    )
    select number, node, is_worker as "isWorker" from dead`
}

/** It owns nothing any more. */
export async function removeOwner(sql: PostgresClient, number: number): Promise<void> {
  await sql`delete from owner where number = ${number}`
}
