// The table ackbox_received: who handled what, written in the transaction of the work.
import { hasCode, withTables, type Database, type Tx } from '../adapter/transaction.ts'
import type { ReceivedTask } from './message.ts'

/** What an earlier, committed transaction of the same delivery returned. */
export interface Repeat {
  result: unknown
}

/**
 * The first statement of a handler's transaction. Undefined: this delivery is new here, and every other transaction of it waits for the
 * end of this one.
 */
export async function begin(
  tx: Tx,
  consumer: string,
  { webhookId, taskNo, forgetAfter }: ReceivedTask
): Promise<Repeat | undefined> {
  const key = [consumer, webhookId]
  const until = timeText(tx, forgetAfter)
  const isFirst = () => withTables(tx, () => insert(tx, [...key, taskNo, until]), 'consumer')
  if (await isFirst()) return undefined
  const [found] =
    tx.dialect === 'postgres'
      ? await tx.query(
          'select result, (forget_after < $1::text::timestamptz)::int as is_sooner from ackbox_received where consumer = $2::text and webhook_id = $3::text',
          [until, ...key]
        )
      : // A locking read sees what was committed after this transaction began; shared, as the insert has left it: two repeats would deadlock.
        await tx.query(
          'select result, forget_after < ? as is_sooner from ackbox_received where consumer = ? and webhook_id = ? lock in share mode',
          [until, ...key]
        )
  if (!found) {
    // Pruned, or taken back, since the insert.
    if (await isFirst()) return undefined
    throw new Vanished()
  }
  // An operator delivers it again: it is to be remembered for longer.
  if (Number(found['is_sooner']) === 1) await remember(tx, key, until)
  const result = found['result']
  return { result: typeof result === 'string' ? (JSON.parse(result) as unknown) : undefined }
}

/** The row came and went while it was looked for. The transaction must be rolled back; the next attempt will know. */
class Vanished extends Error {
  readonly code = '40001'
}

async function insert(tx: Tx, values: string[]): Promise<boolean> {
  if (tx.dialect === 'postgres') {
    const rows = await tx.query(
      `insert into ackbox_received (consumer, webhook_id, task_no, forget_after)
       values ($1::text, $2::text, $3::text, $4::text::timestamptz) on conflict do nothing returning webhook_id`,
      values
    )
    return rows.length > 0
  }
  try {
    await tx.query(
      'insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values (?, ?, ?, ?)',
      values
    )
    return true
  } catch (err) {
    // `insert ignore` would take a value that is too long, or a deadlock, for a repeat.
    if (!hasCode(err, ['ER_DUP_ENTRY', 1062], /\b1062\b/)) throw err
    return false
  }
}

async function remember(tx: Tx, key: string[], until: string): Promise<void> {
  await tx.query(
    tx.dialect === 'postgres'
      ? 'update ackbox_received set forget_after = $1::text::timestamptz where consumer = $2::text and webhook_id = $3::text'
      : 'update ackbox_received set forget_after = ? where consumer = ? and webhook_id = ?',
    [until, ...key]
  )
}

/** Keeps what the work returned, for the repeats. */
export async function keep(tx: Tx, consumer: string, webhookId: string, result: string): Promise<void> {
  await tx.query(
    tx.dialect === 'postgres'
      ? 'update ackbox_received set result = $1::text where consumer = $2::text and webhook_id = $3::text'
      : 'update ackbox_received set result = ? where consumer = ? and webhook_id = ?',
    [result, consumer, webhookId]
  )
}

/** The work threw. Should its transaction be committed all the same, the delivery must come again. */
export async function takeBack(tx: Tx, consumer: string, webhookId: string): Promise<void> {
  const [first, second] = tx.dialect === 'postgres' ? ['$1::text', '$2::text'] : ['?', '?']
  try {
    await tx.query(`delete from ackbox_received where consumer = ${first} and webhook_id = ${second}`, [
      consumer,
      webhookId
    ])
  } catch {
    // The error of the work has ended the transaction: nothing of it will be committed.
  }
}

/** Deletes the rows whose deliveries Ackbox has not sent for a day: a request may be late, and clocks differ. */
export async function prune(db: Database<unknown>, consumer: string): Promise<void> {
  const isPostgres = db.dialect === 'postgres'
  const old = isPostgres
    ? "consumer = $1::text and forget_after < now() - interval '1 day'"
    : 'consumer = ? and forget_after < utc_timestamp() - interval 1 day'
  const some = isPostgres
    ? `delete from ackbox_received where ctid = any (array(select ctid from ackbox_received where ${old} limit 1000))`
    : `delete from ackbox_received where ${old} limit 1000`
  const left = () => db.query(`select webhook_id from ackbox_received where ${old} limit 1`, [consumer])
  while ((await withTables(db, left, 'consumer')).length > 0) await db.query(some, [consumer])
  // Tokens are valid for 90 days.
  await db.query(
    isPostgres
      ? "delete from ackbox_receipt_outbox where consumer = $1::text and created_at < now() - interval '90 days'"
      : 'delete from ackbox_receipt_outbox where consumer = ? and created_at < utc_timestamp() - interval 90 day',
    [consumer]
  )
}

/** As text that the database reads the same in every zone. */
const timeText = ({ dialect }: Pick<Tx, 'dialect'>, time: Date): string =>
  dialect === 'postgres' ? time.toISOString() : time.toISOString().replace('T', ' ').replace('Z', '')

/** Deadlocks, failed serialization, and locks that were waited for too long: rolled back, and worth another try. */
export const isBusy = (err: unknown): boolean =>
  hasCode(
    err,
    ['40001', '40P01', '55P03', 1205, 1213, 'ER_LOCK_WAIT_TIMEOUT', 'ER_LOCK_DEADLOCK', 'P2034'],
    /40001|40P01|55P03|\b1205\b|\b1213\b/
  )
