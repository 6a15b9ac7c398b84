// Reads the rows of a home-grown message table as tasks, in a read-only transaction.
import { randomUUID } from 'node:crypto'
import type { Readable } from 'node:stream'
import type { RowDataPacket } from 'mysql2'
import { textArray } from '../db/arrays.ts'
import { mayBeOfRow } from '../db/batch.ts'
import { mayPass } from '../db/row-faults.ts'
import { connectUnpinned, isInfrastructure, locatePrimary, type Transaction } from '../db/pool.ts'
import { problemBody } from '../runtime/errors.ts'
import { sessionSettings } from '../runtime/session-settings.ts'
import { kinds, type Columns, type Member } from './columns.ts'
import { answerWithin, mysqlDriver, socketOf } from './mysql-connection.ts'
import { importSession, wishes } from './mysql-session.ts'
import { byKey, wholeThenByKey, type WholeKeyReader } from './read-rows.ts'
import { isOfLimit, mayBeOfExpression } from './mysql.ts'
import { setLocal, timeText } from './postgres.ts'
import { longestSilenceMs, RelayError, type RelayRow } from './source.ts'

export interface TableQuery {
  /** A table, or any other SQL that may follow FROM. */
  table: string
  columns: Columns
  /** SQL. Undefined: every row. */
  where: string | undefined
  /** SQL. Undefined: in no particular order. */
  order: string | undefined
  batch: number
}

/** All rows, as they are at one moment. */
export interface Snapshot {
  count: number
  batches: AsyncIterable<RelayRow[]>
}

/**
 * Opens the table while `work` runs. The abort cuts the connection to MySQL: the batches end, or the result is undefined if `work` has not
 * begun. Throws the driver's errors, and a RelayError for a URL that is not of a database.
 */
export async function withTable<Result>(
  url: string,
  query: TableQuery,
  work: (snapshot: Snapshot) => Promise<Result>,
  signal: AbortSignal,
  silenceMs = longestSilenceMs
): Promise<Result | undefined> {
  const scheme = URL.canParse(url) ? new URL(url).protocol : ''
  if (scheme === 'postgres:' || scheme === 'postgresql:') return await inPostgres(url, query, work)
  if (scheme === 'mysql:' || scheme === 'mariadb:')
    return await inMysql(url.replace(/^mariadb:/, 'mysql:'), query, work, { signal, silenceMs })
  throw new RelayError('--from must be a postgres:// or mysql:// URL')
}

async function inPostgres<Result>(
  url: string,
  query: TableQuery,
  work: (snapshot: Snapshot) => Promise<Result>
): Promise<Result> {
  await locatePrimary(url)
  const sql = connectUnpinned(url, {
    max: 1,
    connect_timeout: 5,
    connection: { application_name: 'ackbox import' }
  })
  try {
    return (await sql.begin('isolation level repeatable read read only', async tx => {
      // The transaction waits for Ackbox's answers: the server must not end it for being idle, or old.
      await setLocal(tx, {
        ...sessionSettings,
        idle_in_transaction_session_timeout: '0',
        statement_timeout: '0',
        transaction_timeout: '0',
        // All rows are read: the first ones need not come early.
        cursor_tuple_fraction: '1'
      })
      const [found] = await tx<[{ n: string }]>`${tx.unsafe(countOf(query))}`
      return await work({ count: Number(found.n), batches: postgresRows(tx, query) })
    })) as Result
  } finally {
    await sql.end({ timeout: 5 })
  }
}

async function inMysql<Result>(
  url: string,
  query: TableQuery,
  work: (snapshot: Snapshot) => Promise<Result>,
  { signal, silenceMs }: { signal: AbortSignal; silenceMs: number }
): Promise<Result | undefined> {
  await mysqlDriver()
  const { createConnection } = await import('mysql2')
  const connection = createConnection({
    uri: url,
    connectTimeout: 5_000,
    // A count, or a sort before the first row, has no limit: it may take very long. Probes notice a host that vanished, as with postgres.js.
    keepAliveInitialDelay: 60_000,
    jsonStrings: true,
    timezone: 'Z'
  })
  const session = connection.promise()
  // A lost connection fails the statements that are awaited. The driver tells a stream nothing: the rows would neither come nor end.
  let rows: Readable | undefined
  let isWhole = false
  let looking: NodeJS.Timeout | undefined
  connection.on('error', (err: Error) => {
    // Rows that have arrived are good. The driver hands them on when those before them are read: after two looks at none, none follows.
    let wasEmpty = false
    looking ??= setInterval(() => {
      const isEmpty = rows?.readableLength === 0
      if (isEmpty && wasEmpty && !isWhole) rows?.destroy(err)
      wasEmpty = isEmpty
    }, 100)
  })
  const leave = (): unknown => socketOf(session).destroy()
  signal.addEventListener('abort', leave)
  if (signal.aborted) leave()
  try {
    for (const statement of importSession) await answerWithin(silenceMs, session.query(statement))
    for (const wish of wishes)
      await answerWithin(
        silenceMs,
        session.query(wish).catch(() => {})
      )
    await answerWithin(silenceMs, session.query('start transaction with consistent snapshot, read only'))
    const [found] = await session.query<RowDataPacket[]>(countOf(query))
    const text = mysqlText(taskNoOf(query))
    const members = membersOf(query, asMysql, '`', [unreadable(query.columns), `${text} as \`key\``])
    const reading = connection.query(`select ${members} ${fromOf(query)}${orderOf(query)}`)
    reading.once('end', () => {
      isWhole = true
    })
    rows = reading.stream({ highWaterMark: query.batch })
    // The loop over the rows throws the error, also one from before its begin.
    rows.on('error', () => {})
    const ask = async (statement: string): Promise<Found[]> =>
      (await session.query<RowDataPacket[]>(statement))[0] as Found[]
    const reader: WholeKeyReader<Found> = {
      async *keys() {
        if (byNumber.test(query.order ?? ''))
          throw new RelayError(
            'A row of the query cannot be computed, and the rows cannot be read one by one in an --order by numbers of columns: name the columns.'
          )
        const all = await ask(`select ${text} as \`key\` ${fromOf(query)}${orderOf(query)}`)
        for (let at = 0; at < all.length; at += query.batch)
          yield all.slice(at, at + query.batch).map(row => String(row.key))
      },
      // As bytes: a collation may hold two taskNos to be the same. In hexadecimal, whatever the server's sql_mode escapes with.
      read: async keys =>
        await ask(
          `select ${members} ${fromOf(query, `cast(${text} as binary) in (${keys.map(key => `x'${Buffer.from(key).toString('hex')}'`).join()})`)}`
        ),
      keyOf: row => String(row.key),
      nameOf: key => `taskNo ${key}`,
      taskNoOf: key => Promise.resolve(key),
      mayBeOfRow: mayBeOfExpression,
      mayPass: isOfLimit
    }
    const read = wholeThenByKey(gathered(rows, query.batch), reader, { rowOf, batch: query.batch })
    return await work({ count: Number(found[0]?.['n'] ?? 0), batches: untilStopped(read, signal) })
  } catch (err) {
    if (signal.aborted && rows === undefined) return undefined
    throw err
  } finally {
    signal.removeEventListener('abort', leave)
    clearInterval(looking)
    connection.destroy()
    // The driver waits until the server closes its side too.
    leave()
  }
}

/** The abort has cut the connection: its error is the end. */
async function* untilStopped<T>(batches: AsyncIterable<T>, signal: AbortSignal): AsyncGenerator<T> {
  try {
    yield* batches
  } catch (err) {
    if (!signal.aborted) throw err
  }
}

type Found = Record<Member | 'unreadable' | 'key', string | number | boolean | null>

/** The flag values in home-grown tables of MySQL, which has no boolean type. The last value of each line is that of BIT. */
const flags = new Map([
  ...['y', 'true', '1', '\u0001'].map(text => [text, true] as const),
  ...['n', 'false', '0', '\u0000'].map(text => [text, false] as const)
])

type Cast = (kind: (typeof kinds)[Member], expression: string) => string

const asPostgres: Cast = (kind, expression) =>
  ({
    text: `(${expression})::text`,
    json: `(${expression})::text`,
    time: timeText(`(${expression})::timestamptz`),
    flag: `(${expression})::boolean`,
    number: `(${expression})::integer`
  })[kind]

/** A letter or a sign after a time of day: `Z`, `+08:00`, `UTC` or `PM`. Only what every MySQL and MariaDB understands. */
const zoned = '([tT:]|[0-9]{10})[0-9]{2}.*[a-zA-Z+-]'

const asMysql: Cast = (kind, expression) =>
  ({
    text: `convert((${expression}) using utf8mb4)`,
    json: `convert((${expression}) using utf8mb4)`,
    // A value that MySQL cannot parse as a time, such as seconds since 1970, stays: as null, the task would be sent at once. A text
    // with a zone stays too, because MySQL ignores what follows the time of day.
    time: `case when convert((${expression}) using utf8mb4) regexp '${zoned}' then convert((${expression}) using utf8mb4)
      else coalesce(date_format((${expression}), '%Y-%m-%dT%H:%i:%s.%fZ'), convert((${expression}) using utf8mb4)) end`,
    flag: `convert((${expression}) using utf8mb4)`,
    number: `(${expression}) + 0`
  })[kind]

/** SQL for the names of members whose bytes are not UTF-8. In their text, each such byte is a question mark. */
function unreadable(columns: Columns): string {
  const names = Object.entries(columns).flatMap(([name, expression]) => {
    if (!['text', 'json'].includes(kinds[name as Member])) return []
    const bytes = (text: string): string => `cast(${text} as binary)`
    const isSame = `${bytes(`convert((${expression}) using utf8mb4)`)} <=> ${bytes(`(${expression})`)}`
    return [`case when charset((${expression})) = 'binary' and not (${isSame}) then '${name}' end`]
  })
  return `concat_ws(',', ${names.join(', ')}) as unreadable`
}

const membersOf = ({ columns }: TableQuery, cast: Cast, quote: '"' | '`', more: readonly string[]): string =>
  [
    ...Object.entries(columns).map(
      ([name, expression]) => `${cast(kinds[name as Member], expression)} as ${quote}${name}${quote}`
    ),
    ...more
  ].join(', ')

function fromOf({ table, where }: TableQuery, condition?: string): string {
  const conditions = [where, condition].flatMap(one => (one === undefined ? [] : `(${one})`))
  return `from ${table}${conditions.length === 0 ? '' : ` where ${conditions.join(' and ')}`}`
}

const orderOf = ({ order }: TableQuery): string => (order === undefined ? '' : ` order by ${order}`)
const countOf = (query: TableQuery): string => `select count(*) as n ${fromOf(query)}`
const taskNoOf = ({ columns }: TableQuery): string => columns.taskNo ?? 'null'
/** An order by the number of a column means a column of the whole query. */
const byNumber = /(?:^|,)\s*\d+\s*(?:$|,|asc\b|desc\b)/i
/** The text that a row has as its taskNo. */
const mysqlText = (expression: string): string => `coalesce(convert((${expression}) using utf8mb4), '')`

/** A name of a table, perhaps with an alias. */
const plainTable = /^\s*((?:[\p{L}\p{N}_$.]|"[^"]*")+)(?:\s+(?:as\s+)?(?:[\p{L}\p{N}_$]+|"[^"]*"))?\s*$/iu
/** Rows of one table have a place (ctid). With the oid of the table or partition it is unique, and stays while the transaction sees the row. */
async function hasPlaces(tx: Transaction, { table }: TableQuery): Promise<boolean> {
  const name = plainTable.exec(table)?.[1]
  if (name === undefined) return false
  try {
    const [found] = await tx.savepoint(
      part => part<{ is: boolean }[]>`
        select relkind in ('r', 'p', 'm') as is from pg_class where oid = to_regclass(${name})`
    )
    return found?.is === true
  } catch (err) {
    // The name is not that of a table alone.
    if (isInfrastructure(err)) throw err
    return false
  }
}

async function* postgresRows(tx: Transaction, query: TableQuery): AsyncGenerator<RelayRow[]> {
  const { batch } = query
  const members = membersOf(query, asPostgres, '"', [])
  const ofTaskNo = `coalesce((${taskNoOf(query)})::text, '')`
  const all = (key: string): string => `select ${members}, ${key} as "key" ${fromOf(query)}${orderOf(query)}`
  /** PostgreSQL computes only those members that the order needs. It may name them, or have their numbers. */
  async function* keysOf(key: string): AsyncGenerator<string[]> {
    for await (const rows of fetched(tx, `select "key" from (${all(key)}\n) ackbox_rows`, batch))
      yield rows.map(row => String(row.key))
  }
  const some = async (what: string, condition: string, keys: readonly string[]): Promise<Found[]> =>
    await tx.savepoint(async part => {
      const select = part.unsafe(`select ${what} ${fromOf(query, condition)}`)
      return await part<
        Found[]
      >`with ackbox_keys as materialized (select ${textArray(keys)}::text[] as keys) ${select}`
    })
  const keyOf = (row: Found): string => String(row.key)

  if (await hasPlaces(tx, query)) {
    const place = `tableoid::text || ' ' || ctid::text`
    const isOne = `ctid = any((select array(select split_part(key, ' ', 2) from unnest(keys) key)::tid[] from ackbox_keys)::tid[])
      and ${place} = any((select keys from ackbox_keys)::text[])`
    yield* byKey(
      {
        read: keys => some(`${place} as "key", ${members}`, isOne, keys),
        keyOf,
        nameOf: key => `ctid ${key.slice(key.indexOf(' ') + 1)}`,
        async taskNoOf(key) {
          try {
            const [row] = await some(`${ofTaskNo} as "taskNo"`, isOne, [key])
            return String(row?.taskNo ?? '')
          } catch (err) {
            if (!mayBeOfRow(err)) throw err
            return ''
          }
        },
        mayBeOfRow,
        mayPass
      },
      keysOf(place),
      rowOf
    )
    return
  }
  yield* wholeThenByKey(
    fetched(tx, all(ofTaskNo), batch),
    {
      keys: () => keysOf(ofTaskNo),
      read: keys =>
        some(
          `${ofTaskNo} as "key", ${members}`,
          `${ofTaskNo} = any((select keys from ackbox_keys)::text[])`,
          keys
        ),
      keyOf,
      nameOf: key => `taskNo ${key}`,
      taskNoOf: key => Promise.resolve(key),
      mayBeOfRow,
      mayPass
    },
    { rowOf, batch }
  )
}

/** The rows of a query. An error leaves the transaction usable. */
async function* fetched(tx: Transaction, statement: string, batch: number): AsyncGenerator<Found[]> {
  const cursor = tx.unsafe(`ackbox_${randomUUID().replaceAll('-', '')}`)
  await tx.savepoint(part => part`declare ${cursor} no scroll cursor for ${part.unsafe(statement)}`)
  for (;;) {
    const rows = await tx.savepoint(part => part<Found[]>`fetch ${part.unsafe(String(batch))} from ${cursor}`)
    if (rows.length > 0) yield rows
    if (rows.length < batch) return
  }
}

async function* gathered(rows: Readable, size: number): AsyncGenerator<Found[]> {
  let batch: Found[] = []
  for await (const row of rows as AsyncIterable<Found>) {
    batch.push(row)
    if (batch.length < size) continue
    yield batch
    batch = []
  }
  if (batch.length > 0) yield batch
}

function rowOf(found: Partial<Found>): RelayRow {
  const text = (name: Member): string | null => {
    const value = found[name] ?? null
    return value === null ? null : String(value)
  }
  let problem: string | undefined
  const flag = (name: Member): boolean | null => {
    const value = found[name] ?? null
    if (value === null || typeof value === 'boolean') return value
    const is = flags.get(String(value).toLowerCase())
    if (is === undefined) {
      const detail = `${name} is ${JSON.stringify(value)}, and not one of y, n, true, false, 1, 0: give an expression, like needCallback=(flag = 'YES')`
      problem ??= JSON.stringify(problemBody('INVALID', detail, `/${name}`))
    }
    return is ?? null
  }
  if (found.unreadable) {
    const [name = ''] = String(found.unreadable).split(',')
    const detail = `the bytes of ${name} are not UTF-8: name their character set, like ${name}=convert(payload using gbk)`
    problem = JSON.stringify(problemBody('NOT_UTF8', detail, `/${name}`))
  }
  const row = {
    id: '',
    taskNo: text('taskNo') ?? '',
    messageCode: text('messageCode') ?? '',
    messageBody: text('messageBody') ?? 'null',
    sceneType: text('sceneType'),
    deliverStartTime: text('deliverStartTime'),
    delayMs: null,
    deliverBefore: text('deliverBefore'),
    orderingKey: text('orderingKey'),
    needCallback: flag('needCallback'),
    retryTimes: found.retryTimes == null ? null : Number(found.retryTimes),
    bizType: text('bizType'),
    bizKey: text('bizKey'),
    uniqueBiz: flag('uniqueBiz'),
    after: text('after'),
    extend: text('extend'),
    traceparent: text('traceparent')
  }
  return problem === undefined ? row : { ...row, problem }
}
