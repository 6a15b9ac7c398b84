import { rowFaults } from '../db/row-faults.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { inHalves } from '../runtime/halves.ts'
import { mysqlPool, onConnection, transaction, type RunQuery } from './mysql-connection.ts'
import {
  byVerdict,
  farMs,
  idsAtOnce,
  inOrder,
  longestIdleMs,
  longestSilenceMs,
  mostBodyBytes,
  refuseLarge,
  rejectedId,
  RelayError,
  returnedId,
  unreadableRow,
  type Only,
  type RelayRow,
  type Share,
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
  const reader = rowReader()
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
      // A server without a binary log, or without the setting, has no such row.
      const [binlog] = await read<{ Value: string }>(
        "show session variables where variable_name = 'binlog_format' and @@log_bin = 1"
      )
      if (binlog?.Value === 'STATEMENT')
        throw new RelayError(
          "binlog_format is STATEMENT: InnoDB then refuses the relay's writes (error 1665). Set binlog_format = MIXED or ROW in the " +
            "server's configuration; or let the relay set it for its sessions: grant its user BINLOG ADMIN (MariaDB) or SESSION_VARIABLES_ADMIN (MySQL)."
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
    async lastId() {
      const [found] = await read<{ id: string | null }>(
        'select cast(max(id) as char) as id from ackbox_outbox'
      )
      return found?.id ?? undefined
    },
    async postShare(share, limit, post, only = {}) {
      return await transaction(pool, silenceMs, async ask => {
        const rows = await reader.rows(ask, share, limit, only)
        if (rows.length === 0) return { seen: 0, removed: 0 }
        const { accepted, rejected } = byVerdict(rows, await post(rows))
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
    close: () => pool.end()
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
const members = `id, task_no as taskNo, message_code as messageCode,
  case when length(message_body) <= ${mostBodyBytes} then message_body end as messageBody, scene_type as sceneType,
  ${time(`coalesce(deliver_start_time, case when ${isNear} then timestampadd(microsecond, nullif(delay_ms, 0) * 1000, created_at) end)`)} as deliverStartTime,
  case when deliver_start_time is not null or not ${isNear} then delay_ms end as delayMs, ${time('deliver_before')} as deliverBefore,
  ordering_key as orderingKey, need_callback as needCallback, retry_times as retryTimes, biz_type as bizType, biz_key as bizKey,
  unique_biz as uniqueBiz, \`after\`, extend, traceparent`

/** A row as the driver returns it: without booleans, and with large numbers as texts. */
interface Row extends Omit<
  RelayRow,
  'id' | 'messageBody' | 'delayMs' | 'needCallback' | 'uniqueBiz' | 'after' | 'extend'
> {
  id: string | number
  messageBody: string | null
  delayMs: string | number | null
  needCallback: number | null
  uniqueBiz: number | null
  after: unknown
  extend: unknown
}

const rowOf = (row: Row): RelayRow =>
  refuseLarge({
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

/** The rows of a read after one that failed, or that found more bytes than it could return. */
const fewRows = 32

/** MySQL reads a whole body to tell its length. So reads of small rows grow, and a long outbox of large ones is read in small parts. */
function rowReader() {
  const mostRows = new Map<Share, number>()
  const faults = rowFaults<string>()
  return {
    async rows(ask: RunQuery, share: Share, limit: number, only: Only): Promise<RelayRow[]> {
      const most = Math.min(mostRows.get(share) ?? fewRows, limit)
      try {
        const found = await sizes(ask, share, most, only)
        const ids = idsAtOnce(found)
        if (ids.length < found.length) mostRows.set(share, Math.max(fewRows, 2 * ids.length))
        else if (found.length === most) mostRows.set(share, 2 * most)
        const unreadable: RelayRow[] = []
        const rows = await inHalves(ids, {
          async work(part) {
            const read = (await byId(ask, share, part)).map(rowOf)
            faults.forget(read.map(row => row.id))
            return read
          },
          mayBeOfOne: mayBeOfRow,
          setAside: (id, err) =>
            unreadable.push(unreadableRow(id, err, faults.isFinal(id, err, !isOfData(err))))
        })
        return unreadable.length > 0 ? inOrder(share, [...rows, ...unreadable]) : rows
      } catch (err) {
        const { errno } = err as { errno?: number }
        if (errno === lockNowait || errno === lockWaitTimeout) return []
        mostRows.delete(share)
        throw err
      }
    }
  }
}

/**
 * Reads by the shard index alone. A scan of other shares would briefly lock their rows, and their NOWAIT would then return no rows. Of a
 * shard it locks nothing, so it returns no rows of open transactions.
 */
const sizes = (
  ask: RunQuery,
  share: Share,
  limit: number,
  { resting = [], upTo }: Only
): Promise<{ id: string | number; bytes: number }[]> =>
  ask(
    `select id, length(message_body) + coalesce(length(extend), 0) + coalesce(length(\`after\`), 0) as bytes
     from ackbox_outbox force index (ackbox_outbox_shard_idx)
     where ${share === 'unkeyed' ? 'shard is null' : `shard = ${Number(share)}`}
     ${resting.length === 0 ? '' : `and ${share === 'unkeyed' ? 'id' : 'ordering_key'} not in (?)`}
     ${upTo === undefined ? '' : 'and id <= ?'} order by id limit ${Number(limit)}
     ${share === 'unkeyed' ? 'for update skip locked' : ''}`,
    [...(resting.length === 0 ? [] : [resting]), ...(upTo === undefined ? [] : [upTo])]
  )

/**
 * One relay at a time reads a shard: two could post the rows of a key in the wrong order. If another relay has locked one of the rows,
 * this relay gets none.
 */
const byId = (ask: RunQuery, share: Share, ids: readonly string[]): Promise<Row[]> =>
  ask<Row>(
    `select ${members} from ackbox_outbox force index (primary) where id in (?) order by id
     ${share === 'unkeyed' ? '' : 'for update nowait'}`,
    [ids]
  )

/** Error codes of NOWAIT: ER_LOCK_NOWAIT from MySQL, ER_LOCK_WAIT_TIMEOUT from MariaDB. */
const lockNowait = 3572
const lockWaitTimeout = 1205

/** The codes of a statement that took too long, or too much memory. */
const limits = new Set<unknown>([1037, 1038, 1041, 1969, 3024])

/** A value that cannot be computed, or is larger than a packet. Without a SQLSTATE the error is one of the client. */
const isOfData = (err: unknown): boolean => {
  const { errno, sqlState } = err as { errno?: number; sqlState?: string }
  return sqlState?.startsWith('22') === true || errno === 1153 || errno === 1301
}

/** A statement took too long, or too much memory, perhaps by the load. */
export const isOfLimit = (err: unknown): boolean => limits.has((err as { errno?: number }).errno)

/** One row may have caused the error. After an error of the connection, nothing more can be read. */
const mayBeOfRow = (err: unknown): boolean => {
  const { errno, code } = err as { errno?: number; code?: string }
  return isOfData(err) || limits.has(errno) || (errno === undefined && code === undefined)
}

/** The same for a query of somebody else: a subquery of several rows, or an error that a function signals. */
export const mayBeOfExpression = (err: unknown): boolean =>
  mayBeOfRow(err) || /^(21|45)/.test((err as { sqlState?: string }).sqlState ?? '')
