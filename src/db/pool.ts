import postgres from 'postgres'
import { findPrimary, follow, hostUrls, primaryUrl } from './hosts.ts'
import { isTlsError } from '../runtime/tls.ts'
import { ownSessionSettings, sessionSettings } from '../runtime/session-settings.ts'
import { isError } from '../runtime/text-of.ts'

declare module 'postgres' {
  interface Options<T extends Record<string, postgres.PostgresType>> {
    /** By our patch: seconds after which a connection is closed whose server leaves a request unanswered, without a byte. */
    silence_timeout?: number
  }
}

export type Sql = postgres.Sql<{ bigint: number }>
/** A client without types of its own. */
export type PostgresClient = postgres.Sql
export type Transaction = postgres.TransactionSql

interface OpenOptions {
  max: number
  applicationName?: string
  /** A statement that runs longer is cut off by PostgreSQL. */
  statementTimeoutMs?: number
  /** If the server leaves a request unanswered for longer than this, without a byte, the connection is closed. */
  silenceMs?: number
}

/** The most connections for the reads of the API and the counts of dispatchers (reads.ts), beside those of the hot pool. */
export const readConnections = 4

/** A fault of the database and its remedy, in one line for the operator. */
export class DatabaseError extends Error {
  override name = 'DatabaseError'
}

/** The wait for a standby was cancelled: what the statement wrote is committed here, and is lost with this server. */
export class UnconfirmedCommit extends Error {
  override name = 'UnconfirmedCommit'
  readonly code = 'COMMIT_UNCONFIRMED'
}

/**
 * For `onnotice`. By our patch the statement in flight fails with the error. PostgreSQL only warns: the error comes neither with a code of
 * its own nor with a text that does not depend on the server's language, but from one place in its source (syncrep.c).
 */
const failUnconfirmed = ({ routine, message }: postgres.Notice): UnconfirmedCommit | undefined =>
  routine === 'SyncRepWaitForLSN' ? new UnconfirmedCommit(message) : undefined

/**
 * A client of postgres.js with our patch. Without the patch a lost connection can end the process, or leave a statement
 * outside of its transaction, so the process refuses to start. npm silently skips the patch if it runs no scripts.
 */
export const connect: typeof postgres = ((url: string, options: postgres.Options<Record<string, never>>) =>
  connectUnpinned(url, {
    ...options,
    connection: { ...sessionSettings, ...options.connection }
  })) as typeof postgres

/** The same with the settings of the server: for a session that may pass a pooler, which refuses others. Its transactions set them. */
export const connectUnpinned: typeof postgres = ((
  url: string,
  options: postgres.Options<Record<string, never>>
) => {
  const sql = postgres(primaryUrl(url), { onnotice: failUnconfirmed, ...options })
  follow(url, sql.options)
  // The unpatched package drops the option.
  if ('silence_timeout' in sql.options) return sql
  throw new DatabaseError(
    'The package postgres lacks the patch of Ackbox: npm leaves it out with --ignore-scripts. Run `npx patch-package`.'
  )
}) as typeof postgres

/** Checks for the patch before anything is started. It opens no connection. */
export function checkClient(): void {
  connect('postgres://127.0.0.1/ackbox', { max: 1 })
}

/** Shorter with several hosts, since another host may answer. */
const severalConnectSeconds = 2

/**
 * The hot pool. Statements go through it one by one: never `begin` or `reserve` across awaits.
 * bigint comes as a number (all of ours stay below 2^53), timestamptz as a Date.
 */
export function openDb(url: string, options: OpenOptions): Sql {
  const statementTimeoutMs = options.statementTimeoutMs ?? 10_000
  const settings = {
    max: options.max,
    fetch_types: true,
    connect_timeout: hostUrls(url).length > 1 ? severalConnectSeconds : 5,
    // The default waits up to 20 s before it tries again, long after PostgreSQL is back.
    backoff: (retries: number) => Math.min(0.05 * 2 ** retries, 0.5) * (0.75 + Math.random() / 4),
    types: { bigint: { to: 20, from: [20], parse: Number, serialize: String } },
    // A host that vanished (pulled cable, black hole) does not close its connections, and TCP alone notices
    // only after a quarter of an hour: until then each of them would occupy the pool.
    silence_timeout: (options.silenceMs ?? statementTimeoutMs + 5_000) / 1000,
    connection: {
      ...ownSessionSettings,
      application_name: options.applicationName ?? 'ackbox',
      statement_timeout: statementTimeoutMs,
      // Words, not false: postgres.js leaves falsy settings out.
      // On a young table the planner takes a sequential scan, and the plan is then cached per connection.
      enable_seqscan: 'off',
      // With enable_seqscan off its penalty cost makes PostgreSQL compile trivial look-ups: 300 ms each.
      jit: 'off',
      // A 2xx promises it; a default of `off` of the server or the role must not break the promise.
      synchronous_commit: 'on'
    }
  }
  return connect(url, settings)
}

const ours = /^(COMMIT_UNCONFIRMED|CONNECTION_(CLOSED|ENDED|DESTROYED|CONNECT_TIMEOUT)|CONNECT_TIMEOUT)$/
const system =
  /^(ECONN\w+|EPIPE|ETIMEDOUT|EHOSTUNREACH|EHOSTDOWN|ENETUNREACH|ENETDOWN|ENOTFOUND|EAI_\w+|ENOENT)$/
// 08 connection, 53 resources (disk full, too many connections), 57P0x shutdown, 25006 read-only, 57014 and 55P03 too slow or locked, 58 system,
// 3D000 no such database, 28 not let in, 25P0x a limit of the server for idle or long transactions
const server = /^(08\w{3}|53\w{3}|57P0\w|57014|25006|25P0[34]|55P03|58\w{3}|3D000|28\w{3})$/

/**
 * True when the database is away, full, read-only or too busy, or its certificate is not accepted: the statement is not the cause, so a
 * later retry may succeed.
 */
export function isInfrastructure(err: unknown, depth = 0): boolean {
  if (!isError(err) || depth > 10) return false
  const { code } = err as { code?: unknown }
  if (typeof code !== 'string') {
    // drizzle's own errors carry PostgreSQL's as their cause.
    const inner: unknown[] = err instanceof AggregateError ? err.errors : []
    return [err.cause, ...inner].some(one => isInfrastructure(one, depth + 1))
  }
  return ours.test(code) || system.test(code) || server.test(code) || isTlsError(code)
}

/**
 * With several hosts in the URL: finds the host that accepts writes, moves all clients of this process there, and ends the
 * sessions of Ackbox on live read-only hosts, at every call: a session that connected during a move ends at the next call.
 */
export async function locatePrimary(url: string): Promise<void> {
  const readOnly = await findPrimary(url, isWritable)
  await Promise.all(readOnly.map(host => endSessions(host).catch(() => {})))
}

const locating = 'ackbox locate'
const probe = (url: string) =>
  connect(url, {
    max: 1,
    connect_timeout: severalConnectSeconds,
    // A host that falls silent after the handshake: the search waits for all hosts.
    silence_timeout: 3,
    fetch_types: false,
    connection: { application_name: locating, statement_timeout: 2_000 }
  })

async function isWritable(url: string): Promise<boolean> {
  const sql = probe(url)
  try {
    const [row] = await sql<{ writable: boolean }[]>`
      select not pg_is_in_recovery() and current_setting('default_transaction_read_only') = 'off' as writable`
    return row?.writable === true
  } finally {
    void sql.end({ timeout: 1 })
  }
}

/** A primary that became read-only keeps its connections: the statements on ours would continue to fail there. */
async function endSessions(url: string): Promise<void> {
  const sql = probe(url)
  try {
    await sql`
      select pg_terminate_backend(pid) from pg_stat_activity
      where usename = current_user and datname = current_database() and pid <> pg_backend_pid()
        and application_name like 'ackbox%' and application_name <> ${locating}`
  } finally {
    void sql.end({ timeout: 1 })
  }
}

/** Throws an error unless the server of this URL can be reached and can keep our promise. */
export async function checkDatabase(url: string): Promise<void> {
  await locatePrimary(url)
  const sql = openDb(url, { max: 1 })
  try {
    await checkServer(sql)
  } finally {
    await sql.end({ timeout: 1 })
  }
}

const direct =
  'Point DATABASE_URL to PostgreSQL itself, not to a pooler such as pgbouncer: Ackbox keeps few connections (PG_POOL), with settings, prepared statements and LISTEN.'

/** Is this the error of a pooler that refuses the settings of a session? */
export const isPoolerError = (err: unknown): err is Error =>
  isError(err) && /unsupported startup parameter/.test(err.message)

function poolerRefuses(err: unknown): never {
  if (isPoolerError(err)) throw new DatabaseError(`A pooler answers (${err.message}). ${direct}`)
  throw err
}

/** Throws a DatabaseError unless this server can keep our promise. */
export async function checkServer(sql: Sql): Promise<{ version: string }> {
  // A pooler may give the session a name of its own.
  const { application_name: _, ...sent } = sql.options.connection
  const [row] = await sql<
    {
      version: string
      number: number
      encoding: string
      readonly: string
      replica: boolean
      replication: string
      lost: string | null
    }[]
  >`
    select current_setting('server_version') as version, current_setting('server_version_num')::int as number,
           current_setting('server_encoding') as encoding,
           current_setting('default_transaction_read_only') as readonly, pg_is_in_recovery() as replica,
           current_setting('session_replication_role') as replication, (
             select string_agg(p.name, ', ' order by p.name)
             from unnest(${Object.keys(sent)}::text[], ${Object.values(sent).map(String)}::text[]) as s (name, value)
             join pg_settings p on p.name = s.name and p.setting <> s.value
             -- One with a unit, such as 64MB in DATABASE_URL, is shown in another form.
             where p.source <> 'client'
           ) as lost`.catch(poolerRefuses)
  if (!row) throw new DatabaseError('PostgreSQL did not return its version.')
  // A pooler that ignores them would ignore synchronous_commit too.
  if (row.lost !== null)
    throw new DatabaseError(`Settings of our sessions do not reach PostgreSQL: ${row.lost}. ${direct}`)
  if (row.replication !== 'origin')
    throw new DatabaseError(
      `session_replication_role is ${row.replication} for this user: our triggers would not run. Reset it: alter role … reset session_replication_role`
    )
  if (row.number < 140_000) {
    throw new DatabaseError(
      `PostgreSQL ${row.version} is too old: Ackbox needs 14 or newer. Point DATABASE_URL to one.`
    )
  }
  if (row.encoding !== 'UTF8') {
    throw new DatabaseError(
      `The database's encoding is ${row.encoding}: Ackbox needs UTF8. ` +
        "Make one with: create database ackbox encoding 'UTF8' template template0"
    )
  }
  if (row.replica) {
    throw new DatabaseError('This PostgreSQL is a read-only replica. Point DATABASE_URL to the primary.')
  }
  if (row.readonly === 'on') {
    throw new DatabaseError(
      'This PostgreSQL is read-only (default_transaction_read_only is on). Turn it off, ' +
        'or point DATABASE_URL to one that can write.'
    )
  }
  return { version: row.version }
}
