// Drivers that execute SQL text. No library is imported: each function checks the handle for the members that it uses.
import { AsyncLocalStorage } from 'node:async_hooks'
import {
  AdapterError,
  alreadyInside,
  hasAutocommit,
  isInside,
  needsAutocommit,
  txOf,
  type Database,
  type PostgresJs,
  type Row,
  type Tx
} from './transaction.ts'

/** The client from a pool's `connect`, or the given client itself. */
export type PgNative<From> = From extends { connect: { (): Promise<infer Client>; (callback: never): void } }
  ? Client
  : From
/** The handle that the `begin` of postgres.js passes to its work. */
type PostgresJsNative<From> = From extends {
  begin: { (work: (native: infer Native) => unknown): unknown; (options: never, work: never): unknown }
}
  ? Native
  : never
/** Of a pool or a connection with callbacks, it is the promise version. */
export type Mysql2Native<From> = From extends { promise(): infer Promised }
  ? Mysql2Native<Promised>
  : From extends { getConnection(): Promise<infer Connection> }
    ? Connection
    : From

interface PgClient {
  query(text: string, values?: unknown[]): Promise<{ rows: Row[]; command?: string }>
  release?(err?: Error): void
  on?(event: 'error', listener: () => void): void
  removeListener?(event: 'error', listener: () => void): void
}
interface PgPool extends PgClient {
  connect(): Promise<PgClient>
  totalCount: number
}

/** For `pg`: pass a client in a transaction, or a pool where a database is needed. A single client has one transaction at a time. */
export function fromPg<From extends object>(from: From): Database<PgNative<From>> {
  const handle = from as unknown as PgClient | PgPool
  if (typeof handle.query !== 'function') throw wrongHandle('fromPg', 'a client or a pool of pg')
  const pool = 'totalCount' in handle ? handle : undefined
  const single = pool ? undefined : from
  const within = (client: PgClient): Tx => ({
    dialect: 'postgres',
    query: async (text, values) => (await client.query(text, [...values])).rows
  })
  const requireOutside = async (): Promise<void> => {
    if (pool) return
    // One message without values, so outside a transaction both times are that of this statement.
    const { rows } = await handle.query('select now() <> statement_timestamp() as inside')
    if (rows[0]?.['inside'] === true) throw alreadyInside('fromPg')
  }
  return {
    ...within(handle),
    ...(pool ? { refusal: 'This is a pool of pg and no transaction' } : {}),
    within: native => within(native as unknown as PgClient),
    requireOutside: () => inTurn(single, requireOutside),
    begin: work =>
      inTurn(single, async () => {
        await requireOutside()
        const client = pool ? await pool.connect() : handle
        const statement = async (text: string) => void (await client.query(text))
        if (pool) client.on?.('error', ignoreLost)
        return await inTransaction(
          statement,
          () => work(client as unknown as PgNative<From>),
          err => {
            if (!pool) return
            // With an error the pool closes the client, which may emit more of them.
            if (!err) client.removeListener?.('error', ignoreLost)
            client.release?.(err)
          }
        )
      })
  }
}

/**
 * A pool of pg listens only to its idle clients. When a connection is lost during a transaction, the client emits an error, which would
 * end the process. The next statement of the transaction fails with the same cause.
 */
const ignoreLost = () => {}

interface Mysql2Connection {
  query(text: string): Promise<[unknown, unknown]>
  execute(text: string, values: unknown[]): Promise<[unknown, unknown]>
  release?(): void
  destroy?(): void
}
interface Mysql2Pool extends Mysql2Connection {
  getConnection(): Promise<Mysql2Connection>
}

/**
 * For `mysql2`, on MySQL or MariaDB: pass a connection in a transaction, or a pool of mysql2/promise where a database is needed. A single
 * connection has one transaction at a time.
 */
export function fromMysql2<From extends object>(from: From): Database<Mysql2Native<From>> {
  // Handles with callbacks have the method `promise`, which returns their promise version.
  const promised = (native: unknown): Mysql2Connection | Mysql2Pool => {
    const { promise } = native as { promise?: (this: unknown) => Mysql2Connection }
    return typeof promise === 'function' ? promise.call(native) : (native as Mysql2Connection)
  }
  const handle = promised(from)
  if (typeof handle.execute !== 'function')
    throw wrongHandle('fromMysql2', 'a connection or a pool of mysql2')
  const pool = 'getConnection' in handle ? handle : undefined
  const single = pool ? undefined : from
  const within = (connection: Mysql2Connection): Tx => ({
    dialect: 'mysql',
    async query(text, values) {
      const [rows] =
        values.length === 0 ? await connection.query(text) : await connection.execute(text, [...values])
      return Array.isArray(rows) ? (rows as Row[]) : []
    }
  })
  const requireOutside = async (): Promise<void> => {
    if (pool || !(await isInside(within(handle)))) return
    throw (await hasAutocommit(within(handle))) ? alreadyInside('fromMysql2') : needsAutocommit('fromMysql2')
  }
  return {
    ...within(handle),
    ...(pool ? { refusal: 'This is a pool of mysql2 and no transaction' } : {}),
    within: native => within(promised(native)),
    requireOutside: () => inTurn(single, requireOutside),
    begin: work =>
      inTurn(single, async () => {
        await requireOutside()
        const connection = pool ? await pool.getConnection() : handle
        const statement = async (text: string) => void (await connection.query(text))
        return await inTransaction(
          statement,
          () => work(connection as unknown as Mysql2Native<From>),
          err => {
            // The connection's state is unknown, so it is destroyed. This releases its locks.
            if (err) connection.destroy?.()
            else if (pool) connection.release?.()
          }
        )
      })
  }
}

/** For the `sql` of postgres.js where a database is needed. Its `tx` needs no adapter. */
function fromPostgresJs<From extends PostgresJs>(from: From): Database<PostgresJsNative<From>> {
  const sql = from as unknown as PostgresJsSql<PostgresJsNative<From>>
  if (typeof sql.begin !== 'function')
    throw new AdapterError(
      'Unknown database object: pass the `sql` of postgres.js, or wrap that of another library with its from… function.'
    )
  return {
    ...txOf(from),
    within: native => txOf(native as unknown as PostgresJs),
    begin: work => sql.begin(work)
  }
}
/** The library's own handle of a transaction. */
export type NativeOf<Db> = Db extends Database<infer Native> ? Native : PostgresJsNative<Db>

/** The `sql` of postgres.js needs no adapter. */
export const databaseOf = <Db extends Database<unknown> | PostgresJs>(db: Db): Database<NativeOf<Db>> =>
  ('within' in db ? db : fromPostgresJs(db)) as Database<NativeOf<Db>>
interface PostgresJsSql<Native> {
  begin<Result>(work: (native: Native) => Promise<Result>): Promise<Result>
}

/** For a single connection: the next transaction waits for the end of the one before. Together they would be one transaction. */
async function inTurn<Result>(connection: object | undefined, begin: () => Promise<Result>): Promise<Result> {
  if (connection === undefined) return await begin()
  const turn: Turn = { connection, isOpen: true, around: current.getStore() }
  for (let around = openAround(turn); around; around = openAround(around))
    if (around.connection === connection)
      throw new AdapterError(
        'This is one connection, and the transaction that this work runs in has it. Pass a pool in its place.'
      )
  const before = latest.get(connection) ?? Promise.resolve()
  const own = before
    .then(() => current.run(turn, begin))
    .finally(() => {
      turn.isOpen = false
    })
  const end = own
    .catch(() => {})
    .then(() => {
      if (latest.get(connection) === end) latest.delete(connection)
    })
  latest.set(connection, end)
  return await own
}
/** The latest transaction of each single connection. It never rejects. One that has ended would keep the turn that started it. */
const latest = new WeakMap<object, Promise<unknown>>()
/** A transaction on a single connection, and the one that its work runs in. */
interface Turn {
  connection: object
  isOpen: boolean
  around: Turn | undefined
}
/** The nearest open turn around this one. Closed ones are left out from then on: works that start each other would keep them for ever. */
function openAround(turn: Turn): Turn | undefined {
  while (turn.around && !turn.around.isOpen) turn.around = turn.around.around
  return turn.around
}
/** A transaction that waits for its own end would wait for ever. What a work has started, such as a timer, keeps it after that end. */
const current = new AsyncLocalStorage<Turn>()

async function inTransaction<Result>(
  statement: (text: string) => Promise<void>,
  work: () => Promise<Result>,
  end: (err?: Error) => void
): Promise<Result> {
  try {
    await statement('begin')
    const result = await work().catch(async (err: unknown) => {
      await statement('rollback')
      throw new WorkFailed(err)
    })
    await statement('commit')
    end()
    return result
  } catch (err) {
    if (!(err instanceof WorkFailed)) {
      end(err as Error)
      throw err
    }
    end()
    throw err.cause
  }
}
/** The work threw and was rolled back. The connection is still usable. */
class WorkFailed extends Error {
  constructor(cause: unknown) {
    super('', { cause })
  }
}

export function wrongHandle(name: string, wanted: string): AdapterError {
  return new AdapterError(`${name} takes ${wanted}, and was given something else.`)
}
