// The table ackbox_received: the handled deliveries of each consumer, written in the transaction of the work.
import { randomUUID } from 'node:crypto'
import { AdapterError, hasCode, withTables, type Tx } from '../adapter/transaction.ts'
import type { ReceivedTask } from './message.ts'

/** The result of an earlier, committed transaction of the same delivery. */
export interface Repeat {
  result: unknown
}

/** A delivery that was not handled before. */
export interface First {
  tx: Tx
  key: [consumer: string, webhookId: string]
  /** The JSON in the result column while the work runs. It is unique to this transaction. */
  mark: string
}

/** Matches the mark that is in the result column before the result. */
const unfinished = /^"unfinished [0-9a-f-]{36}"$/

/**
 * The first statement of a handler's transaction. If this delivery is new, every other transaction with the same delivery waits for the
 * end of this one.
 */
export async function begin(
  tx: Tx,
  consumer: string,
  { webhookId, taskNo, forgetAfter }: ReceivedTask
): Promise<First | Repeat> {
  const key: First['key'] = [consumer, webhookId]
  const first: First = { tx, key, mark: `"unfinished ${randomUUID()}"` }
  const until = timeText(tx, forgetAfter)
  const isFirst = () => withTables(tx, () => insert(first, taskNo, until), 'consumer')
  if (await isFirst()) return first
  const [found] =
    tx.dialect === 'postgres'
      ? await tx.query(
          'select result, (forget_after < $1::text::timestamptz)::int as sooner from ackbox_received where consumer = $2::text and webhook_id = $3::text',
          [until, ...key]
        )
      : // A locking read sees later commits too. The lock is shared, like that of the failed insert: with exclusive locks two repeats deadlock.
        await tx.query(
          'select result, forget_after < ? as sooner from ackbox_received where consumer = ? and webhook_id = ? lock in share mode',
          [until, ...key]
        )
  if (!found) {
    // The row was pruned or taken back after the insert.
    if (await isFirst()) return first
    throw new Vanished()
  }
  // After an operator's redelivery, the row must be kept for longer.
  if (Number(found['sooner']) === 1) await extendForgetAfter(tx, key, until)
  const result = found['result']
  // Unfinished: the work committed the transaction itself, and then its process died.
  const isKept = typeof result === 'string' && !unfinished.test(result)
  return { result: isKept ? (JSON.parse(result) as unknown) : undefined }
}

/** True: a committed transaction has handled this delivery. Call it in a transaction of its own. */
export async function isHandled(tx: Tx, consumer: string, webhookId: string): Promise<boolean> {
  const marks = tx.dialect === 'postgres' ? ['$1::text', '$2::text'] : ['?', '?']
  const text = `select webhook_id from ackbox_received where consumer = ${marks[0]} and webhook_id = ${marks[1]}`
  const rows = await withTables(tx, () => tx.query(text, [consumer, webhookId]), 'consumer')
  return rows.length > 0
}

/** The row appeared and disappeared during the read. The transaction must be rolled back. The next attempt finds the right state. */
class Vanished extends Error {
  readonly code = '40001'
}

async function insert({ tx, key, mark }: First, taskNo: string, until: string): Promise<boolean> {
  if (tx.dialect === 'postgres') {
    const rows = await tx.query(
      `insert into ackbox_received (consumer, webhook_id, task_no, forget_after, result)
       values ($1::text, $2::text, $3::text, $4::text::timestamptz, $5::text) on conflict do nothing returning webhook_id`,
      [...key, taskNo, until, mark]
    )
    return rows.length > 0
  }
  try {
    await tx.query(
      'insert into ackbox_received (consumer, webhook_id, task_no, forget_after, result) values (?, ?, ?, ?, ?)',
      [...key, taskNo, until, mark]
    )
    return true
  } catch (err) {
    // `insert ignore` would report a too long value or a deadlock as a repeat.
    if (!hasCode(err, ['ER_DUP_ENTRY', 1062])) throw err
    return false
  }
}

async function extendForgetAfter(tx: Tx, key: string[], until: string): Promise<void> {
  await tx.query(
    tx.dialect === 'postgres'
      ? 'update ackbox_received set forget_after = $1::text::timestamptz where consumer = $2::text and webhook_id = $3::text'
      : 'update ackbox_received set forget_after = ? where consumer = ? and webhook_id = ?',
    [until, ...key]
  )
}

/**
 * Runs after the work. Stores its result as JSON for the repeats. Throws if the transaction has ended during the work: the work itself or the
 * database rolled it back. Work that swallows errors does not notice this: its earlier writes are undone, and COMMIT reports no error.
 */
export async function keep({ tx, key, mark }: First, result: string | undefined): Promise<void> {
  if (tx.dialect === 'postgres') {
    const kept = await tx.query(
      `update ackbox_received set result = $1::text
       where consumer = $2::text and webhook_id = $3::text and result = $4::text returning webhook_id`,
      [result ?? null, ...key, mark]
    )
    if (kept.length === 0) throw new Ended()
    return
  }
  if (!(await isThere(tx, key, mark))) throw new Ended()
  await tx.query('update ackbox_received set result = ? where consumer = ? and webhook_id = ?', [
    result ?? null,
    ...key
  ])
}

/** Later statements of the work were committed one by one. */
class Ended extends AdapterError {
  constructor() {
    super(
      'This transaction has ended during the work: by a ROLLBACK, or by the database after a deadlock. Let the error end the work, and run no ROLLBACK in it. It is repeated then.'
    )
  }
}

/** In MySQL. Locks nothing: if the transaction has ended, the row may now belong to another transaction of the same delivery. */
async function isThere(tx: Tx, key: First['key'], mark: string): Promise<boolean> {
  const rows = await tx.query(
    'select webhook_id from ackbox_received where consumer = ? and webhook_id = ? and result = ?',
    [...key, mark]
  )
  return rows.length > 0
}

/** Called when the work threw. If its transaction is committed anyway, the next attempt must run the work again. */
export async function takeBack({ tx, key, mark }: First): Promise<void> {
  try {
    if (tx.dialect === 'postgres')
      await tx.query(
        'delete from ackbox_received where consumer = $1::text and webhook_id = $2::text and result = $3::text',
        [...key, mark]
      )
    else if (await isThere(tx, key, mark))
      await tx.query('delete from ackbox_received where consumer = ? and webhook_id = ?', key)
  } catch {
    // The error of the work has ended the transaction, so nothing of it will be committed.
  }
}

/** Text that the database reads as the same time in every time zone. */
const timeText = ({ dialect }: Pick<Tx, 'dialect'>, time: Date): string =>
  dialect === 'postgres' ? time.toISOString() : time.toISOString().replace('T', ' ').replace('Z', '')

/**
 * Deadlocks, serialization failures (1020 of MariaDB is one), lock timeouts, and Prisma's limits of a transaction: the transaction is rolled back, and a retry can
 * succeed.
 */
export const isBusy = (err: unknown): boolean =>
  hasCode(err, [
    '40001',
    '40P01',
    '55P03',
    1020,
    1205,
    1213,
    'ER_CHECKREAD',
    'ER_LOCK_WAIT_TIMEOUT',
    'ER_LOCK_DEADLOCK',
    'P2028',
    'P2034'
  ])
