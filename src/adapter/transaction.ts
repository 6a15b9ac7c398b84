// The part of a database library that `ackbox/producer` and `ackbox/consumer` need. The functions `from…` adapt a library's handle to it.

export type Dialect = 'postgres' | 'mysql'

/** Runs statements in the caller's transaction, or in a pool. Placeholders are those of the dialect, in the order of the values. */
export interface Tx {
  readonly dialect: Dialect
  query(text: string, values: readonly Value[]): Promise<readonly Row[]>
  /** The error text. Set if the library shows that this is not a transaction. */
  readonly refusal?: string | undefined
}
/** All values are text. Numbers and times are written as text too, and the database casts them. */
export type Value = string | null
export type Row = Readonly<Record<string, unknown>>

/** A database that can begin a transaction. `Native` is the library's own handle of a transaction. */
export interface Database<Native> extends Tx {
  begin<Result>(work: (native: Native) => Promise<Result>): Promise<Result>
  within(native: Native): Tx
  /** Rejects as `begin` would for a transaction, or for a connection inside one. */
  requireOutside?(): Promise<void>
}

/** The `tx` of postgres.js, which needs no adapter, or its `sql` where a database is needed. */
export interface PostgresJs {
  unsafe(text: string, values: string[]): PromiseLike<readonly unknown[]>
}

/** The given handle cannot be used here. The message contains the reason. Nothing was written. */
export class AdapterError extends Error {
  override name: string = 'AdapterError'
}

/** For a handle that is in a transaction of the caller: what `begin` began would end with that one, or would end it. */
export const alreadyInside = (name: string): AdapterError =>
  new AdapterError(
    `${name} was given a transaction. A transaction of its own is needed here: pass the database.`
  )

export function txOf(from: Tx | PostgresJs): Tx {
  const handle = from as (Partial<Tx> & Partial<PostgresJs>) | null
  if (handle?.dialect !== undefined) return from as Tx
  if (typeof handle?.unsafe !== 'function')
    throw new AdapterError(
      'Unknown transaction object: pass the `tx` of postgres.js, or wrap that of another library with its from… function.'
    )
  const sql = from as PostgresJs
  const isPool = 'begin' in sql && !('release' in sql)
  return {
    dialect: 'postgres',
    // The type of `unsafe` excludes null values, but `unsafe` accepts them.
    query: async (text, values) => (await sql.unsafe(text, values as string[])) as readonly Row[],
    ...(isPool ? { refusal: 'This is the `sql` of postgres.js, not a transaction' } : {})
  }
}

const outside =
  'the row would be committed even if your work is rolled back. Begin a transaction, and pass the object that it gives you.'

/**
 * Throws unless the statements of `tx` run in one transaction. PostgreSQL accepts LOCK TABLE only in a transaction, and an INSERT takes
 * the same `lock` anyway. Outside a transaction, MySQL drops a savepoint at the end of its statement.
 */
export async function requireTransaction(tx: Tx, lock: string): Promise<void> {
  if (tx.refusal !== undefined) throw new AdapterError(`${tx.refusal}: ${outside}`)
  if (await isInside(tx, lock)) return
  throw new AdapterError(`This is a connection outside a transaction, or a pool: ${outside}`)
}

/** True: `tx` is inside a transaction. `lock` is required for PostgreSQL, which would log the error. */
export async function isInside(tx: Tx, lock = ''): Promise<boolean> {
  try {
    if (tx.dialect === 'postgres') await tx.query(`lock table ${lock}`, [])
    else {
      await tx.query('savepoint ackbox_is_here', [])
      await tx.query('release savepoint ackbox_is_here', [])
    }
    return true
  } catch (err) {
    if (hasCode(err, tx.dialect === 'postgres' ? noTransaction : noSavepoint)) return false
    // MySQL prepares no SAVEPOINT, and Prisma prepares every statement. What the library shows counts then.
    if (tx.dialect === 'mysql' && hasCode(err, notPrepared)) return tx.refusal === undefined
    throw err
  }
}
const noTransaction = ['25P01']
const noSavepoint = ['ER_SP_DOES_NOT_EXIST', 1305]
const notPrepared = ['ER_UNSUPPORTED_PS', 1295]

const known = new WeakSet<Tx>()

/** Whether a statement outside a transaction is committed by itself. A server or a pool of MySQL or MariaDB may have turned it off. */
export async function hasAutocommit(tx: Tx): Promise<boolean> {
  if (tx.dialect === 'postgres' || known.has(tx)) return true
  const [row] = await tx.query('select @@session.autocommit as autocommit', [])
  if (String(row?.['autocommit']) === '0') return false
  known.add(tx)
  return true
}

/** Each statement is committed when its query resolves: in a transaction of its own, if autocommit is off. */
export const autocommitted = (db: Database<unknown>): Tx => ({
  dialect: db.dialect,
  query: async (text, values) =>
    (await hasAutocommit(db))
      ? await db.query(text, values)
      : await db.begin(native => db.within(native).query(text, values))
})

/** For a handle that is one connection: without autocommit, whatever is there is inside a transaction. */
export const needsAutocommit = (name: string): AdapterError =>
  new AdapterError(
    `${name} needs autocommit, which is off in this session: run \`set session autocommit = 1\` first, or pass a pool.`
  )

/** Runs the work. For a missing table, throws an error that explains how to create it. */
export async function withTables<Result>(
  { dialect }: Tx,
  work: () => Promise<Result>,
  command: 'relay' | 'consumer' = 'relay'
): Promise<Result> {
  try {
    return await work()
  } catch (err) {
    // undefined_table
    if (!hasCode(err, ['42P01', 'ER_NO_SUCH_TABLE', 1146])) throw err
    throw new AdapterError(
      `The tables are missing in this database: \`npx ackbox ${command} --print-ddl ${dialect}\` prints them.`,
      { cause: err }
    )
  }
}

/**
 * Each library wraps the driver's error in its own way. Prisma has the code only in the message. Messages of others contain values of the
 * statement, so a number in them is not a code.
 */
export function hasCode(err: unknown, codes: readonly (string | number)[]): boolean {
  const wanted = new Set(codes.map(String))
  const seen = new Set<unknown>()
  const look = (one: unknown, depth: number): boolean => {
    if (typeof one !== 'object' || one === null || depth > 5 || seen.has(one)) return false
    seen.add(one)
    const { code, errno, originalCode, message } = one as Record<string, unknown>
    const [, codeInMessage] =
      depth === 0 && typeof message === 'string' ? (/\bCode: `(\w+)`\. Message: /.exec(message) ?? []) : []
    if ([code, errno, originalCode, codeInMessage].some(each => wanted.has(String(each)))) return true
    return ['cause', 'driverError', 'originalError', 'meta', 'driverAdapterError'].some(name =>
      look((one as Record<string, unknown>)[name], depth + 1)
    )
  }
  try {
    return look(err, 0)
  } catch {
    // A work may throw what cannot be read.
    return false
  }
}

/**
 * Deletes from a table of MySQL or MariaDB, a thousand rows at a time, until `find` returns none. `find` locks nothing and returns the
 * keys as `found`. `remove` gets the keys as a JSON array, its first value, and looks them up one by one. A DELETE with a condition would
 * scan the whole of a small table: it would wait for open transactions and block other writes.
 */
export async function removeByKey(
  tx: Tx,
  values: readonly Value[],
  { find, remove }: { find: string; remove: string }
): Promise<void> {
  let last: string | undefined
  for (;;) {
    const keys = (await tx.query(find, values)).map(row => String(row['found']))
    // The same key again: the snapshot of a transaction still contains rows that another transaction has deleted.
    if (keys[0] === undefined || keys[0] === last) return
    last = keys[0]
    await tx.query(remove, [JSON.stringify(keys), ...values])
  }
}
