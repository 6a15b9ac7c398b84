import {
  connect,
  isInfrastructure,
  isPoolerError,
  locatePrimary,
  type PostgresClient,
  type Transaction
} from '../db/pool.ts'
import { mayBeOfRow } from '../db/batch.ts'
import { textBytes } from '../db/json-size.ts'
import { rowFaults, type RowFaults } from '../db/row-faults.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { inHalves } from '../runtime/halves.ts'
import {
  byVerdict,
  farMs,
  idsAtOnce,
  inOrder,
  longestIdleMs,
  longestSilenceMs,
  mostBodyBytes,
  mostMoreBytes,
  refuseLarge,
  rejectedId,
  RelayError,
  returnedId,
  unreadableRow,
  type Only,
  type ReadRow,
  type RelayRow,
  type RowVerdict,
  type Share,
  type Source
} from './source.ts'

/** `ackbox_outbox` in the producer's PostgreSQL (13 or newer). */
export function postgresSource(
  url: string,
  connections: number,
  silenceMs = longestSilenceMs,
  idleMs = longestIdleMs,
  /** How long a row is tried whose read may have failed by the load. */
  triedMs?: number
): Source {
  const options = {
    max: connections,
    connect_timeout: 5,
    connection: {
      application_name: 'ackbox relay',
      statement_timeout: 30_000,
      // The server ends the session of a host that vanished after half a minute, and with it the locks of its rows.
      tcp_keepalives_idle: 15,
      tcp_keepalives_interval: 5,
      tcp_keepalives_count: 3
    }
  }
  const sql = connect(url, { ...options, silence_timeout: silenceMs / 1_000 })
  const faults = rowFaults<string>(triedMs)
  return {
    async check() {
      await locatePrimary(url)
      const [found] = await sql<[{ there: boolean }]>`
        select to_regclass('ackbox_outbox') is not null and to_regclass('ackbox_outbox_rejected') is not null as there`.catch(
        (err: unknown) => {
          if (!isPoolerError(err)) throw err
          throw new RelayError(
            `A pooler answers (${err.message}). Point --from to PostgreSQL itself, not to a pooler such as pgbouncer: the relay keeps few connections, with settings.`,
            { cause: err }
          )
        }
      )
      if (!found.there)
        throw new RelayError(
          'The tables ackbox_outbox and ackbox_outbox_rejected are missing: `ackbox relay --print-ddl postgres` prints them.'
        )
    },
    async shards() {
      const rows = await sql<{ shard: number }[]>`
        select shard from generate_series(0, 15) as s (shard)
        where exists (select from ackbox_outbox o where o.ordering_key is not null and o.shard = s.shard)`
      return rows.map(row => row.shard)
    },
    async lastId() {
      const [found] = await sql<[{ id: string | null }]>`select max(id)::text as id from ackbox_outbox`
      return found.id ?? undefined
    },
    async postShare(share, limit, post, only = {}) {
      /** Reads in halves, each in a savepoint, once a read of all has failed. */
      const turn = async (isInHalves: boolean): Promise<{ seen: number; removed: number }> => {
        let isReading = false
        // Serializable transactions would abort each other and those of the producer.
        const done = sql.begin('isolation level read committed', async tx => {
          await setLocal(tx, {
            idle_in_transaction_session_timeout: `${idleMs}ms`,
            transaction_timeout: '0'
          })
          const ids = await firstIds(tx, share, limit, only)
          isReading = true
          const rows = await (isInHalves ? readInHalves(tx, share, ids, faults) : readRows(tx, ids))
          isReading = false
          faults.forget(rows.filter(row => row.problem === undefined).map(row => row.id))
          return await settle(tx, rows, post)
        })
        return await done.catch(async (err: Error & { code?: string }) => {
          if (err.code === '55P03') return { seen: 0, removed: 0 }
          if (isReading && !isInHalves && mayBeOfRow(err)) return await turn(true)
          if (isInfrastructure(err)) await locatePrimary(url)
          throw err
        })
      }
      return await turn(false)
    },
    async waiting() {
      const [found] = await sql<[{ rows: number; oldest_s: number; rejected: number }]>`
        select (select count(*)::int from (select from ackbox_outbox limit 100000) o) as rows,
          (select count(*)::int from (select from ackbox_outbox_rejected limit 100000) r) as rejected,
          coalesce((
            select extract(epoch from now() - created_at) from ackbox_outbox order by id limit 1
          ), 0)::float8 as oldest_s`
      return { rows: found.rows, oldestS: Math.max(0, found.oldest_s), rejected: found.rejected }
    },
    async retryRejected() {
      // Of all rows at once: pages could not keep their order. The answer may take longer than the silence of any other statement.
      const patient = connect(url, { ...options, max: 1 })
      try {
        return await patient.begin('isolation level read committed', async tx => {
          await setLocal(tx, { statement_timeout: '0', transaction_timeout: '0' })
          const moved = await tx`
            with back as (delete from ackbox_outbox_rejected returning *)
            insert into ackbox_outbox (id, ${columns(tx)}) overriding system value
            select ${tx.unsafe(returnedId)}, ${columns(tx)} from back`
          return moved.count
        })
      } finally {
        await patient.end({ timeout: 5 })
      }
    },
    close: () => sql.end({ timeout: 5 })
  }
}

/** Posts the rows, and removes those with a final answer. */
async function settle(
  tx: Transaction,
  rows: RelayRow[],
  post: (rows: RelayRow[]) => Promise<RowVerdict[]>
): Promise<{ seen: number; removed: number }> {
  if (rows.length === 0) return { seen: 0, removed: 0 }
  const { accepted, rejected } = byVerdict(rows, await post(rows))
  if (accepted.length > 0) await tx`delete from ackbox_outbox where id = any(${accepted}::bigint[])`
  if (rejected.length > 0) {
    await tx`
      with refused as (
        select * from unnest(
          ${rejected.map(one => one.id)}::bigint[], ${rejected.map(one => one.problem)}::text[]
        ) as r (id, problem)
      ), gone as (
        delete from ackbox_outbox o using refused r where o.id = r.id
        returning o.*, r.problem
      )
      insert into ackbox_outbox_rejected (id, ${columns(tx)}, problem)
      select ${tx.unsafe(rejectedId('gone'))}, ${columns(tx)}, problem from gone order by gone.id`
  }
  failpoint('relay.after_remove')
  return { seen: rows.length, removed: accepted.length + rejected.length }
}

/** Settings for the rest of a transaction. A server without one of them, such as transaction_timeout before PostgreSQL 17, leaves it out. */
export async function setLocal(tx: Transaction, settings: Record<string, string>): Promise<void> {
  await tx`
    select set_config(s.name, value, true)
    from unnest(${Object.keys(settings)}::text[], ${Object.values(settings)}::text[]) as s (name, value)
    join pg_settings p on p.name = s.name`
}

/** The columns that both tables have and that are not generated, without the id. */
const columns = (tx: Pick<PostgresClient, 'unsafe'>) =>
  tx.unsafe(`task_no, message_code, message_body, scene_type, deliver_start_time, delay_ms, deliver_before, ordering_key,
    need_callback, retry_times, biz_type, biz_key, unique_biz, "after", extend, traceparent, created_at`)

/** A timestamptz as RFC 3339 in UTC. A value outside the calendar, such as infinity, stays: as null, the task would be sent at once. */
export const timeText = (at: string): string =>
  `coalesce(to_char((${at}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), (${at})::text)`

const isSmall = (tx: Transaction, column: 'extend' | '"after"') =>
  tx`(coalesce(${textBytes(tx, column)}, 0) <= ${mostMoreBytes})`

const isNear = `delay_ms between -${farMs} and ${farMs}`
const members = (tx: Transaction) => {
  const time = (at: string) => tx.unsafe(timeText(at))
  return tx`
    id::text, task_no as "taskNo", message_code as "messageCode",
    case when octet_length(message_body) <= ${mostBodyBytes} then message_body end as "messageBody",
    scene_type as "sceneType", ${time(`coalesce(deliver_start_time, case when ${isNear} then created_at + nullif(delay_ms, 0) * interval '1 ms' end)`)} as "deliverStartTime",
    case when deliver_start_time is not null or not ${tx.unsafe(isNear)} then delay_ms::float8 end as "delayMs",
    ${time('deliver_before')} as "deliverBefore", ordering_key as "orderingKey", need_callback as "needCallback",
    retry_times as "retryTimes", biz_type as "bizType", biz_key as "bizKey", unique_biz as "uniqueBiz",
    case when ${isSmall(tx, '"after"')} then "after"::text end as "after", not ${isSmall(tx, '"after"')} as "isAfterLarge",
    case when ${isSmall(tx, 'extend')} then extend::text end as extend, not ${isSmall(tx, 'extend')} as "isExtendLarge", traceparent`
}

/**
 * Locks the first rows. Returns the ids of as many as are read at once: by a second statement, which sees what a transaction of the producer
 * has changed in them. One relay at a time has a shard: two could post the rows of a key in the wrong order. A locked row of it raises 55P03.
 */
async function firstIds(
  tx: Transaction,
  share: Share,
  limit: number,
  { resting = [], upTo }: Only
): Promise<string[]> {
  const bound = upTo === undefined ? tx`` : tx`and id <= ${upTo}::bigint`
  const bytes = tx`octet_length(message_body) + coalesce(pg_column_size(extend), 0) + coalesce(pg_column_size("after"), 0)`
  const found = await (share === 'unkeyed'
    ? tx<{ id: string; bytes: number }[]>`
        select id::text, ${bytes} as bytes from ackbox_outbox
        where ordering_key is null and id <> all(${resting}::bigint[]) ${bound} order by ackbox_outbox.id limit ${limit} for update skip locked`
    : tx<{ id: string; bytes: number }[]>`
        select id::text, ${bytes} as bytes from ackbox_outbox
        where ordering_key is not null and shard = ${share} and ordering_key <> all(${resting}::text[]) ${bound} order by ackbox_outbox.id limit ${limit} for update nowait`)
  return found.length === 0 ? [] : idsAtOnce(found)
}

async function readRows(tx: Transaction, ids: readonly string[]): Promise<RelayRow[]> {
  if (ids.length === 0) return []
  const rows = await tx<ReadRow[]>`
    select ${members(tx)} from ackbox_outbox where id = any(${ids}::bigint[]) order by ackbox_outbox.id`
  return rows.map(refuseLarge)
}

async function readInHalves(
  tx: Transaction,
  share: Share,
  ids: readonly string[],
  faults: RowFaults<string>
): Promise<RelayRow[]> {
  const unreadable: RelayRow[] = []
  const rows = await inHalves(ids, {
    work: part => tx.savepoint(async savepoint => await readRows(savepoint, part)),
    mayBeOfOne: mayBeOfRow,
    setAside: (id, err) => unreadable.push(unreadableRow(id, err, faults.isFinal(id, err)))
  })
  return inOrder(share, [...rows, ...unreadable])
}
