// The table ackbox_received: who handled what, written in the transaction of the work.
import { randomUUID } from 'node:crypto'
import { AdapterError, hasCode, withTables, type Tx } from '../adapter/transaction.ts'
import type { ReceivedTask } from './message.ts'

/** What an earlier, committed transaction of the same delivery returned. */
export interface Repeat {
  result: unknown
}

/** A delivery that is new here. */
export interface First {
  tx: Tx
  key: [consumer: string, webhookId: string]
  /** What its row has for a result while the work goes on, as JSON: no row of another transaction has it. */
  mark: string
}

/** What stands for the result until there is one. */
const unfinished = /^"unfinished [0-9a-f-]{36}"$/

/**
 * The first statement of a handler's transaction. When this delivery is new here, every other transaction of it waits for the end of
 * this one.
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
    if (await isFirst()) return first
    throw new Vanished()
  }
  // An operator delivers it again: it is to be remembered for longer.
  if (Number(found['is_sooner']) === 1) await remember(tx, key, until)
  const result = found['result']
  // Unfinished: the work has committed by itself, and its process died then.
  const isKept = typeof result === 'string' && !unfinished.test(result)
  return { result: isKept ? (JSON.parse(result) as unknown) : undefined }
}

/** The row came and went while it was looked for. The transaction must be rolled back; the next attempt will know. */
class Vanished extends Error {
  readonly code = '40001'
}

async function insert({ tx, key, mark }: First, taskNo: string, until: string): Promise<boolean> {
  if (tx.dialect === 'postgres') {
    const rows = await tx.query(
      `insert into ackbox_received (consumer, webhook_id, task_no, forget_after)
       values ($1::text, $2::text, $3::text, $4::text::timestamptz) on conflict do nothing returning webhook_id`,
      [...key, taskNo, until]
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
    // `insert ignore` would take a value that is too long, or a deadlock, for a repeat.
    if (!hasCode(err, ['ER_DUP_ENTRY', 1062])) throw err
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

/**
 * After the work: keeps what it returned, as JSON, for the repeats. Throws where the database has ended the transaction meanwhile, which a
 * work that swallows errors does not know: whatever it wrote before is undone, and COMMIT would not tell.
 */
export async function keep({ tx, key, mark }: First, result: string | undefined): Promise<void> {
  if (tx.dialect === 'postgres') {
    // Any statement fails in a transaction that an error has ended.
    if (result === undefined) await tx.query('select 1 as is_open', [])
    else
      await tx.query(
        'update ackbox_received set result = $1::text where consumer = $2::text and webhook_id = $3::text',
        [result, ...key]
      )
    return
  }
  if (!(await isThere(tx, key, mark))) throw new Ended()
  await tx.query('update ackbox_received set result = ? where consumer = ? and webhook_id = ?', [
    result ?? null,
    ...key
  ])
}

/** A deadlock ends a transaction of MySQL: what the work did afterwards was committed by itself. */
class Ended extends AdapterError {
  constructor() {
    super(
      'The database has ended this transaction, as it does at a deadlock, while the work went on: the error must end the work, which then comes again.'
    )
  }
}

/** Locks nothing: where the transaction is over, another one of the same delivery may have its row by now. */
async function isThere(tx: Tx, key: First['key'], mark: string): Promise<boolean> {
  const rows = await tx.query(
    'select webhook_id from ackbox_received where consumer = ? and webhook_id = ? and result = ?',
    [...key, mark]
  )
  return rows.length > 0
}

/** The work threw. Should its transaction be committed all the same, the delivery must come again. */
export async function takeBack({ tx, key, mark }: First): Promise<void> {
  const [one, two] = tx.dialect === 'postgres' ? ['$1::text', '$2::text'] : ['?', '?']
  try {
    if (tx.dialect === 'mysql' && !(await isThere(tx, key, mark))) return
    await tx.query(`delete from ackbox_received where consumer = ${one} and webhook_id = ${two}`, key)
  } catch {
    // The error of the work has ended the transaction: nothing of it will be committed.
  }
}

/** As text that the database reads the same in every zone. */
const timeText = ({ dialect }: Pick<Tx, 'dialect'>, time: Date): string =>
  dialect === 'postgres' ? time.toISOString() : time.toISOString().replace('T', ' ').replace('Z', '')

/** Deadlocks, failed serialization, and locks that were waited for too long: rolled back, and worth another try. */
export const isBusy = (err: unknown): boolean =>
  hasCode(err, ['40001', '40P01', '55P03', 1205, 1213, 'ER_LOCK_WAIT_TIMEOUT', 'ER_LOCK_DEADLOCK', 'P2034'])
