// Finds the sessions and slots that keep dead rows. Vacuum keeps a row version that a transaction may still see, and every query
// for due deliveries reads it again.
import type { Sql } from '../../db/pool.ts'

/** Older transactions are reported. A query for a report may take minutes, but a longer one slows Ackbox down. */
const heldMs = 5 * 60_000
/** For slots and standbys PostgreSQL has no time, only the number of transactions since. */
const heldTransactions = 100_000

export interface Holder {
  kind: 'transaction' | 'prepared' | 'slot' | 'standby'
  /** A pid, or the name of the prepared transaction, slot or standby. */
  name: string
  /** For a slot: its kind and plugin. */
  user: string
  /** Unknown for slots and standbys. */
  seconds: number | null
  /** The first words of the query, without quoted texts. For a slot or a standby: the rows and WAL that it keeps. */
  detail: string
}

export interface HolderFacts {
  /** Sorted, the oldest first. */
  holders: Holder[]
  /** Number of sessions of other users, which this user may not see. */
  hidden: number
}

/** A query on one line and without its quoted texts, in SQL: they may be data or a password. */
export const withoutTexts = (column: string): string =>
  `trim(regexp_replace(regexp_replace(${column}, '''([^'']|'''')*''?', '…', 'g'), '\\s+', ' ', 'g'))`

/** Reads transactions of this database only, and all slots and standbys. Transactions of other databases keep none of our rows. */
export async function lookAtHolders(sql: Sql, fromMs = heldMs): Promise<HolderFacts> {
  const holders = await sql<Holder[]>`
    select 'transaction' as kind, pid::text as name, coalesce(usename, '') as user,
      extract(epoch from now() - xact_start)::float8 as seconds,
      left(${sql.unsafe(withoutTexts('query'))}, 60) as detail
    from pg_stat_activity
    where backend_type = 'client backend' and datname = current_database() and pid <> pg_backend_pid()
      -- One that only stands open, without a snapshot or a change, keeps nothing.
      and (backend_xmin is not null or backend_xid is not null)
      and xact_start < now() - ${fromMs}::float8 * interval '1 ms'
    union all
    select 'prepared', gid, owner::text, extract(epoch from now() - prepared)::float8, ''
    from pg_prepared_xacts
    where database = current_database() and prepared < now() - ${fromMs}::float8 * interval '1 ms'
    union all
    select 'slot', slot_name, concat_ws(' ', slot_type, plugin), null, concat_ws(', ',
      case when xmin is not null then 'dead rows of ' || age(xmin) || ' transactions' end,
      case when restart_lsn is not null and not pg_is_in_recovery()
        then pg_size_pretty(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)) || ' of WAL' end)
    from pg_replication_slots
    where not active and coalesce(restart_lsn::text, xmin::text) is not null or age(xmin) > ${heldTransactions}::int
    union all
    select 'standby', application_name, coalesce(usename, ''), null, 'dead rows of ' || age(backend_xmin) || ' transactions'
    from pg_stat_replication
    where age(backend_xmin) > ${heldTransactions}::int
    order by 4 desc nulls last`
  const [row] = await sql<{ hidden: number }[]>`
    select count(*)::int as hidden from pg_stat_activity
    where backend_type is null and datname = current_database()`
  return { holders: [...holders], hidden: row?.hidden ?? 0 }
}

const age = (seconds: number): string =>
  seconds < 7_200 ? `${Math.floor(seconds / 60)} min` : `${Math.floor(seconds / 3_600)} h`

const quoted = (name: string): string => `'${name.replaceAll("'", "''")}'`

function describe({ kind, name, user, seconds, detail }: Holder): { found: string; remedy: string } {
  const since = age(seconds ?? 0)
  switch (kind) {
    case 'transaction':
      return {
        found: `pid ${name} of ${user} for ${since}: ${detail}`,
        remedy: `select pg_terminate_backend(${name})`
      }
    case 'prepared':
      return {
        found: `the prepared transaction ${name} of ${user} for ${since}`,
        remedy: `rollback prepared ${quoted(name)}, or commit prepared`
      }
    case 'slot':
      return {
        found: `the ${user} slot ${name}: ${detail}`,
        remedy: `connect its reader, or select pg_drop_replication_slot(${quoted(name)})`
      }
    case 'standby':
      return {
        found: `queries on the standby ${name}: ${detail}`,
        remedy: 'end its long queries, or set hot_standby_feedback = off there'
      }
  }
}

/** The oldest three holders of these kinds, and the remedy for the first. Undefined: there is no holder. */
export function heldBack(
  { holders }: HolderFacts,
  kinds: readonly Holder['kind'][]
): { found: string; remedy: string } | undefined {
  const these = holders.filter(({ kind }) => kinds.includes(kind)).map(describe)
  const [first] = these
  if (!first) return undefined
  const more = these.length > 3 ? `; and ${these.length - 3} more` : ''
  const found = these
    .slice(0, 3)
    .map(one => one.found)
    .join('; ')
  return { found: found + more, remedy: first.remedy }
}
