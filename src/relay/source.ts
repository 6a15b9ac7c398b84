import { problemBody, reasonOf } from '../runtime/errors.ts'

/** A row of `ackbox_outbox`, as its database formats it. Times are RFC 3339 in UTC. */
export interface RelayRow {
  /** The number of the row: the order of insertion. */
  id: string
  taskNo: string
  messageCode: string
  /** The text of a JSON value; not checked yet. */
  messageBody: string
  sceneType: string | null
  deliverStartTime: string | null
  /**
   * Set only beside a deliverStartTime, or if it is beyond every calendar: Ackbox refuses both. Any other delay is already in
   * deliverStartTime, because a row that is posted again must be the same task.
   */
  delayMs: number | null
  deliverBefore: string | null
  orderingKey: string | null
  needCallback: boolean | null
  retryTimes: number | null
  bizType: string | null
  bizKey: string | null
  uniqueBiz: boolean | null
  /** The text of a JSON array of taskNos. */
  after: string | null
  /** The text of a JSON object. */
  extend: string | null
  traceparent: string | null
  /** The problem (JSON) that the read found. Such a row cannot be a task. */
  problem?: string
  /** The row is not rejected for its problem, and is read again. */
  stays?: boolean
}

/** Bytes read at once: about those of one request. One row is read whatever its size. */
const bytesAtOnce = 6_291_456

/** The ids of the first rows that are read at once. */
export function idsAtOnce(found: readonly { id: string | number; bytes: string | number }[]): string[] {
  let sum = 0
  const end = found.findIndex(row => (sum += Number(row.bytes)) > bytesAtOnce)
  return found.slice(0, end < 0 ? found.length : Math.max(1, end)).map(row => String(row.id))
}

/** A request of the API has at most 8 MiB: a larger body is not read. */
export const mostBodyBytes = 8_388_608

/** A larger `extend` or `after` is not read. */
export const mostMoreBytes = 65_536

/** A row without what was too large to be read. */
export interface ReadRow extends Omit<RelayRow, 'messageBody'> {
  messageBody: string | null
  isExtendLarge?: boolean
  isAfterLarge?: boolean
}

/** The row, with a problem if a part of it was not read. */
export function refuseLarge({ isExtendLarge, isAfterLarge, ...row }: ReadRow): RelayRow {
  const { messageBody } = row
  const problem =
    messageBody === null
      ? problemBody('BODY_TOO_LARGE', `more than ${mostBodyBytes} bytes`, '/messageBody')
      : isExtendLarge || isAfterLarge
        ? problemBody('INVALID', `more than ${mostMoreBytes} bytes`, isExtendLarge ? '/extend' : '/after')
        : undefined
  return {
    ...row,
    messageBody: messageBody ?? '',
    ...(problem ? { problem: JSON.stringify(problem) } : {})
  }
}

/** A row that could not be read. It is rejected, or stays if the error is not final. */
export function unreadableRow(id: string, err: unknown, isFinal: boolean): RelayRow {
  const problem = JSON.stringify(problemBody('INVALID', `The row cannot be read: ${reasonOf(err)}`))
  return { ...emptyRow, id, problem, ...(isFinal ? {} : { stays: true }) }
}

/** The rows and the unreadable ones in their order. Of a shard, no row behind one that stays is among them: it may have the same key. */
export function inOrder(share: Share, rows: readonly RelayRow[]): RelayRow[] {
  const sorted = rows.toSorted((a, b) => (BigInt(a.id) < BigInt(b.id) ? -1 : 1))
  const first = share === 'unkeyed' ? -1 : sorted.findIndex(row => row.stays)
  return first < 0 ? sorted : sorted.slice(0, first + 1)
}

const emptyRow: RelayRow = {
  id: '',
  taskNo: '',
  messageCode: '',
  messageBody: '',
  sceneType: null,
  deliverStartTime: null,
  delayMs: null,
  deliverBefore: null,
  orderingKey: null,
  needCallback: null,
  retryTimes: null,
  bizType: null,
  bizKey: null,
  uniqueBiz: null,
  after: null,
  extend: null,
  traceparent: null
}

/** About a hundred years. Databases cannot represent every time beyond it. */
export const farMs = 3_155_760_000_000

/**
 * A host that vanished does not close its connections, and TCP alone notices only after a quarter of an hour. A statement that has no
 * answer for longer than this ends its connection. PostgreSQL and MySQL end a statement, or its wait for a lock, 5 s earlier.
 */
export const longestSilenceMs = 35_000

/** After this time no further request of a turn begins: it ends with what has an answer. */
export const longestPostsMs = 300_000

/**
 * The database ends a session that is idle in its transaction for longer than this, and with it the locks of a relay that is frozen or
 * whose host vanished. A turn posts for `longestPostsMs` and one request more.
 */
export const longestIdleMs = 600_000

/**
 * The result for a row: Ackbox has the task, or permanently refused it with this problem (JSON), or the row stays. If it stays because of the
 * task and not of Ackbox, with the problem.
 */
export type RowVerdict =
  | { kind: 'accepted'; isNew: boolean }
  | { kind: 'rejected'; problem: string }
  | { kind: 'kept'; problem?: string }

/** The rows without an orderingKey, or the rows of one shard of keys. */
export type Share = 'unkeyed' | number

export interface Waiting {
  rows: number
  /** Seconds since the oldest row was inserted; 0 without rows. */
  oldestS: number
  rejected: number
}

/** Which rows of a share are posted. */
export interface Only {
  /** Leaves out the rows without a key that have these ids, or of a shard the rows of these keys. */
  resting?: readonly string[]
  /** Leaves out the rows behind this id. */
  upTo?: string | undefined
}

/** The producer's database. Each method throws what its driver throws. */
export interface Source {
  /** Throws a RelayError with instructions if the tables are missing. */
  check(): Promise<void>
  /** The shards that have rows. Each key is in one shard, where its rows keep their order. */
  shards(): Promise<number[]>
  /**
   * In one transaction: locks up to `limit` of the oldest rows that no other relay has locked, calls `post` with as many as are read at
   * once, removes the accepted rows and moves the rejected ones. A shard that another relay has locked gives no rows. Returns the numbers of read and removed rows.
   */
  postShare(
    share: Share,
    limit: number,
    post: (rows: RelayRow[]) => Promise<RowVerdict[]>,
    only?: Only
  ): Promise<{ seen: number; removed: number }>
  /** The id of the newest row. Undefined without rows. */
  lastId(): Promise<string | undefined>
  waiting(): Promise<Waiting>
  /** Moves every rejected row back. Returns their number. */
  retryRejected(): Promise<number>
  close(): Promise<void>
}

/** The relay cannot continue. The message contains the remedy. */
export class RelayError extends Error {
  override name = 'RelayError'
}

/**
 * SQL, as the first column of an INSERT into `ackbox_outbox_rejected`: the id of a row of `from`, or a free one below 0 if a rejected
 * row has its id. An outbox that was truncated or restored gives ids again.
 */
export const rejectedId = (from: string): string =>
  `case when exists (select 1 from ackbox_outbox_rejected taken where taken.id = ${from}.id)
   then least(0, (select min(id) from ackbox_outbox_rejected lowest), min(${from}.id) over ()) - row_number() over (order by ${from}.id desc)
   else ${from}.id end`

/**
 * The same, of an INSERT of rejected rows into `ackbox_outbox`: below all that wait, in the order in which the rows were written. Their ids
 * may be of several countings, and the outbox may give them again.
 */
export const returnedId = `least(0, coalesce((select min(id) from ackbox_outbox lowest), 0))
   - row_number() over (order by created_at desc, rejected_at desc, id desc)`

/** The ids of the accepted rows, and of the rejected rows with their problems. */
export function byVerdict(
  rows: readonly RelayRow[],
  verdicts: readonly RowVerdict[]
): { accepted: string[]; rejected: { id: string; problem: string }[] } {
  const accepted: string[] = []
  const rejected: { id: string; problem: string }[] = []
  rows.forEach(({ id }, index) => {
    const verdict = verdicts[index]
    if (verdict?.kind === 'accepted') accepted.push(id)
    if (verdict?.kind === 'rejected') rejected.push({ id, problem: verdict.problem })
  })
  return { accepted, rejected }
}
