import { failpoint } from '../runtime/failpoint.ts'
import { mysqlPool, onConnection, transaction, type Ask } from './mysql-connection.ts'
import {
  byVerdict,
  farMs,
  longestIdleMs,
  longestSilenceMs,
  rejectedId,
  RelayError,
  returnedId,
  type RelayRow,
  type Source
} from './source.ts'

/** `ackbox_outbox` in the producer's MySQL (8.0.16 or newer) or MariaDB (10.6 or newer). */
export async function mysqlSource(
  url: string,
  connections: number,
  silenceMs = longestSilenceMs,
  idleMs = longestIdleMs
): Promise<Source> {
  const pool = await mysqlPool(url, connections, idleMs)
  const read = <T>(statement: string): Promise<T[]> => onConnection(pool, silenceMs, ask => ask<T>(statement))
  return {
    async check() {
      const [found] = await read<{ n: string | number }>(
        `select count(*) as n from information_schema.tables
         where table_schema = database() and table_name in ('ackbox_outbox', 'ackbox_outbox_rejected')`
      )
      if (Number(found?.n) !== 2)
        throw new RelayError(
          'The tables ackbox_outbox and ackbox_outbox_rejected are missing: `ackbox relay --print-ddl mysql` prints them.'
        )
    },
    async shards() {
      const rows = await read<{ shard: number }>(
        // One look into the index for each shard, not a scan of a long outbox. The limit prevents a join.
        `select s.shard from json_table('[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]', '$[*]' columns (shard int path '$')) s
         where (select 1 from ackbox_outbox o force index (ackbox_outbox_shard_idx) where o.shard = s.shard limit 1) is not null`
      )
      return rows.map(row => row.shard)
    },
    async postShare(share, limit, post) {
      return await transaction(pool, silenceMs, async ask => {
        const rows = await (share === 'unkeyed' ? unkeyed(ask, limit) : ofShard(ask, share, limit)).catch(
          (err: Error & { errno?: number }) => {
            if (err.errno === lockNowait || err.errno === lockWaitTimeout) return []
            throw err
          }
        )
        if (rows.length === 0) return { seen: 0, removed: 0 }
        const outboxRows = rows.map(rowOf)
        const { accepted, rejected } = byVerdict(outboxRows, await post(outboxRows))
        for (const { id, problem } of rejected) {
          await ask(
            `insert into ackbox_outbox_rejected (id, ${columns}, problem)
             select ${rejectedId('moved')}, ${columns}, ? from ackbox_outbox moved where id = ?`,
            [problem.slice(0, mostProblem), id]
          )
        }
        const gone = [...accepted, ...rejected.map(one => one.id)]
        if (gone.length > 0) await ask(remove, [JSON.stringify(gone)])
        failpoint('relay.after_remove')
        return { seen: rows.length, removed: gone.length }
      })
    },
    async waiting() {
      const [found] = await read<{
        n: string | number
        oldest_s: string | number | null
        rejected: string | number
      }>(
        `select (select count(*) from (select 1 from ackbox_outbox limit 100000) o) as n,
           (select count(*) from (select 1 from ackbox_outbox_rejected limit 100000) r) as rejected,
           (select timestampdiff(microsecond, created_at, now(6)) / 1000000 from ackbox_outbox order by id limit 1) as oldest_s`
      )
      return {
        rows: Number(found?.n ?? 0),
        oldestS: Math.max(0, Number(found?.oldest_s ?? 0)),
        rejected: Number(found?.rejected ?? 0)
      }
    },
    async retryRejected() {
      // Of all rows at once: with very many, an answer may take longer than the silence of any other statement.
      return await transaction(pool, undefined, async ask => {
        const rows = await ask<{ id: string }>('select id from ackbox_outbox_rejected order by id for update')
        const ids = rows.map(row => row.id)
        if (ids.length === 0) return 0
        await ask(
          `insert into ackbox_outbox (id, ${columns})
           select ${returnedId}, ${columns} from ackbox_outbox_rejected where id in (?)`,
          [ids]
        )
        await ask('delete from ackbox_outbox_rejected where id in (?)', [ids])
        return ids.length
      })
    },
    close: () => pool.pool.end()
  }
}

/** The columns that both tables have and that are not generated, without the id. */
const columns = `task_no, message_code, message_body, scene_type, deliver_start_time, delay_ms, deliver_before, ordering_key,
  need_callback, retry_times, biz_type, biz_key, unique_biz, \`after\`, extend, traceparent, created_at`

/**
 * Looks up each id. `where id in (…)` would scan the whole of a small table and wait for rows of other shares. Two shares that wait for
 * each other are a deadlock.
 */
const remove = `delete o from json_table(?, '$[*]' columns (id bigint path '$')) gone
  straight_join ackbox_outbox o force index (primary) on o.id = gone.id`

/** Characters of a problem; a column of type text holds 65,535 bytes. */
const mostProblem = 16_000

const time = (name: string) => `date_format(${name}, '%Y-%m-%dT%H:%i:%s.%fZ')`
const isNear = `delay_ms between -${farMs} and ${farMs}`
const members = `id, task_no as taskNo, message_code as messageCode, message_body as messageBody, scene_type as sceneType,
  ${time(`coalesce(deliver_start_time, case when ${isNear} then timestampadd(microsecond, delay_ms * 1000, created_at) end)`)} as deliverStartTime,
  case when deliver_start_time is not null or not ${isNear} then delay_ms end as delayMs, ${time('deliver_before')} as deliverBefore,
  ordering_key as orderingKey, need_callback as needCallback, retry_times as retryTimes, biz_type as bizType, biz_key as bizKey,
  unique_biz as uniqueBiz, \`after\`, extend, traceparent`

/** A row as the driver returns it: without booleans, and with large numbers as texts. */
interface Row extends Omit<RelayRow, 'id' | 'delayMs' | 'needCallback' | 'uniqueBiz' | 'after' | 'extend'> {
  id: string | number
  delayMs: string | number | null
  needCallback: number | null
  uniqueBiz: number | null
  after: unknown
  extend: unknown
}

const rowOf = (row: Row): RelayRow => ({
  ...row,
  id: String(row.id),
  delayMs: row.delayMs === null ? null : Number(row.delayMs),
  needCallback: flag(row.needCallback),
  uniqueBiz: flag(row.uniqueBiz),
  after: json(row.after),
  extend: json(row.extend)
})

const flag = (value: number | null): boolean | null => (value === null ? null : value !== 0)
/** The driver returns a json column as text from MariaDB and as a value from MySQL. */
const json = (value: unknown): string | null =>
  value === null ? null : typeof value === 'string' ? value : JSON.stringify(value)

/** Reads by the shard index alone. A scan of other shares would briefly lock their rows, and their NOWAIT would then return no rows. */
const unkeyed = (ask: Ask, limit: number): Promise<Row[]> =>
  ask<Row>(
    `select ${members} from ackbox_outbox force index (ackbox_outbox_shard_idx)
     where shard is null order by id limit ${Number(limit)} for update skip locked`
  )

/**
 * One relay at a time reads a shard: two could post the rows of a key in the wrong order. The first statement locks nothing, so it returns
 * no rows of open transactions. If another relay has locked one of the rows, this relay gets none.
 */
async function ofShard(ask: Ask, shard: number, limit: number): Promise<Row[]> {
  const found = await ask<{ id: string | number }>(
    `select id from ackbox_outbox force index (ackbox_outbox_shard_idx)
     where shard = ${Number(shard)} order by id limit ${Number(limit)}`
  )
  if (found.length === 0) return []
  return await ask<Row>(
    `select ${members} from ackbox_outbox force index (primary) where id in (?) order by id for update nowait`,
    [found.map(row => String(row.id))]
  )
}

/** Error codes of NOWAIT: ER_LOCK_NOWAIT from MySQL, ER_LOCK_WAIT_TIMEOUT from MariaDB. */
const lockNowait = 3572
const lockWaitTimeout = 1205
