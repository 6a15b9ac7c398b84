// Receipts that are not part of an answer. Each is a row, written in the transaction of the work, and is sent until Ackbox has it.
import {
  autocommitted,
  hasCode,
  withTables,
  type Database,
  type Row,
  type Tx
} from '../adapter/transaction.ts'
import type { ReceivedTask } from './message.ts'

export interface Receipt {
  result: 'HANDLED' | 'RETRY' | 'FAILED'
  reason?: string
}

/** Writes the receipt of a message that needs one. */
export async function write(
  tx: Tx,
  consumer: string,
  { callbackUrl = '', callbackToken = '', taskNo, messageCode }: ReceivedTask,
  receipt: Receipt
): Promise<void> {
  const marks = tx.dialect === 'postgres' ? '$1::text, $2::text, $3::text, $4::text' : '?, ?, ?, ?'
  const text = JSON.stringify({ taskNo, messageCode, ...shortened(receipt) })
  const insert = `insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt) values (${marks})`
  await withTables(tx, () => tx.query(insert, [consumer, callbackUrl, callbackToken, text]), 'consumer')
}

/** Ackbox refuses a receipt with a longer reason, and the delivery would wait for a receipt in vain. */
const longestReason = 1_000

/** Half a surrogate pair and NUL are replaced: Ackbox refuses a receipt with either. */
const shortened = ({ result, reason }: Receipt): Receipt =>
  reason === undefined
    ? { result }
    : { result, reason: reason.slice(0, longestReason).replaceAll(/[\0\p{Surrogate}]/gu, '\uFFFD') }

export interface SendOptions {
  consumer: string
  /** The address of Ackbox. Undefined: the address in each request. */
  url: string | undefined
  onError: (err: unknown, about: { taskNo?: string | undefined }) => void
}

/** The most rows of one claim. No other process claims them during their lease. */
const most = 50
const leaseMs = 30_000
/** A longer text is cut, and so refused by Ackbox: 50 rows are read at once. */
const mostCharacters = 1_000_000
const sendMs = 10_000
const longestPauseMs = 60_000
/** With these codes /callback refuses a receipt for good: the token is wrong or old, the task is missing or deleted, or the receipt is invalid. */
const refusals = new Set([
  'BAD_TOKEN',
  'TASK_NOT_FOUND',
  'TASK_DELETED',
  'INVALID',
  'WRONG_CODE',
  'WRONG_DOWNSTREAM',
  'TOO_LARGE',
  'DATA_TOO_LARGE',
  'NOT_JSON',
  'NOT_UTF8',
  'NOT_I_JSON',
  'TOO_DEEP',
  'TOO_MANY_MEMBERS'
])

/** Sends the due receipts. True: more may be due. */
export async function sendDue(
  db: Database<unknown>,
  options: SendOptions,
  signal: AbortSignal
): Promise<boolean> {
  const rows = await withTables(db, () => claim(db, options.consumer), 'consumer')
  // All begin at once, so they have one limit. AbortSignal.any would leave a part of itself in a signal that lives as long as the process.
  const limit = new AbortController()
  const leave = (): void => limit.abort()
  const timer = setTimeout(() => limit.abort(new Error(`no answer within ${sendMs} ms`)), sendMs)
  signal.addEventListener('abort', leave, { once: true })
  if (signal.aborted) leave()
  const sent = rows.map(row => send(db, row, options, { stopping: signal, limit: limit.signal }))
  void Promise.allSettled(sent).then(() => {
    clearTimeout(timer)
    signal.removeEventListener('abort', leave)
  })
  await Promise.all(sent)
  return rows.length === most
}

/** Columns are read by names of one word: libraries can be set to change the names of others, as to camel case. */
const claim = async (db: Database<unknown>, consumer: string): Promise<readonly Row[]> => {
  try {
    return db.dialect === 'postgres' ? await claimInPostgres(db, consumer) : await claimInMysql(db, consumer)
  } catch (err) {
    // Two claims at the same time can conflict. The next claim is soon enough.
    if (hasCode(err, [1020, 1213, 'ER_CHECKREAD', 'ER_LOCK_DEADLOCK', '40P01', '40001'])) return []
    throw err
  }
}

const claimInPostgres = async (db: Database<unknown>, consumer: string): Promise<readonly Row[]> =>
  await db.begin(async native => {
    const tx = db.within(native)
    const rows = await tx.query(
      `select id, callback_url as url, callback_token as token, left(receipt, ${mostCharacters}) as receipt, tries from ackbox_receipt_outbox
       where consumer = $1::text and next_try_at <= clock_timestamp()
       order by next_try_at limit ${most} for update skip locked`,
      [consumer]
    )
    if (rows.length > 0)
      await tx.query(
        `update ackbox_receipt_outbox set next_try_at = clock_timestamp() + interval '${leaseMs} ms', tries = tries + 1
         where id in (${rows.map((_, at) => `$${at + 1}::text::bigint`).join(', ')})`,
        rows.map(idOf)
      )
    return rows
  })

/**
 * Reads the due ids without a lock, and then locks the rows by id. A locking scan of a small table would read all of it, wait for rows of
 * open transactions, and block other transactions that write receipts.
 */
async function claimInMysql(db: Database<unknown>, consumer: string): Promise<readonly Row[]> {
  const due = await autocommitted(db).query(
    `select cast(id as char) as id from ackbox_receipt_outbox
       where consumer = ? and next_try_at <= utc_timestamp(6) order by next_try_at limit ${most}`,
    [consumer]
  )
  if (due.length === 0) return []
  return await db.begin(async native => {
    const tx = db.within(native)
    const rows = await tx.query(
      `select cast(id as char) as id, callback_url as url, callback_token as token, left(receipt, ${mostCharacters}) as receipt, tries
       from ackbox_receipt_outbox force index (primary)
       where id in (${due.map(() => '?').join(', ')}) and next_try_at <= utc_timestamp(6) for update skip locked`,
      due.map(idOf)
    )
    if (rows.length > 0)
      await tx.query(
        `update ackbox_receipt_outbox force index (primary)
         set next_try_at = utc_timestamp(6) + interval ${leaseMs / 1_000} second, tries = tries + 1
         where id in (${rows.map(() => '?').join(', ')})`,
        rows.map(idOf)
      )
    return rows
  })
}

async function send(
  db: Database<unknown>,
  row: Row,
  { url, onError }: SendOptions,
  { stopping, limit }: { stopping: AbortSignal; limit: AbortSignal }
): Promise<void> {
  const receipt = String(row['receipt'])
  const tries = Number(row['tries']) + 1
  const taskNo = taskNoOf(receipt)
  let answer: Response | undefined
  try {
    answer = await fetch(url ?? String(row['url']), {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'ackbox-callback-token': String(row['token'])
      },
      body: receipt,
      redirect: 'manual',
      signal: limit
    })
    const text = await answer.text()
    const message = `The receipt was answered ${answer.status}: ${text.slice(0, 200)}`
    if (!isFinal(answer, text)) throw new Error(`${message}. It is sent again`)
    if (!answer.ok) onError(new ReceiptRefused(message), { taskNo })
    await remove(db, row)
    return
  } catch (err) {
    // Ackbox or the database is unreachable or overloaded, or a proxy answered. Only every tenth failure is reported.
    if (!stopping.aborted && tries % 10 === 0) onError(err, { taskNo })
  }
  const retryAfterMs = Number(answer?.headers.get('retry-after')) * 1_000 || 0
  const pauseMs = stopping.aborted
    ? 0
    : Math.min(longestPauseMs, Math.max(retryAfterMs, 250 * 2 ** Math.min(tries, 10)))
  await putOff(db, row, pauseMs).catch(() => {}) // the lease ends by itself
}

/** Undefined: somebody wrote a row that is no receipt. It is sent as it is, and Ackbox refuses it. */
function taskNoOf(receipt: string): string | undefined {
  try {
    const { taskNo } = JSON.parse(receipt) as { taskNo?: unknown }
    return typeof taskNo === 'string' ? taskNo : undefined
  } catch {
    return undefined
  }
}

/** A proxy, or another path, answers with another body, also in JSON. The receipt must not be lost because of it. */
export function isFinal({ ok }: Pick<Response, 'ok'>, text: string): boolean {
  try {
    const { taskNo, code } = JSON.parse(text) as { taskNo?: unknown; code?: unknown }
    return ok ? typeof taskNo === 'string' : typeof code === 'string' && refusals.has(code)
  } catch {
    return false
  }
}

/** Ackbox permanently refused a receipt. It is not sent again. */
export class ReceiptRefused extends Error {
  override name = 'ReceiptRefused'
}

async function remove(db: Database<unknown>, row: Row): Promise<void> {
  const mark = db.dialect === 'postgres' ? '$1::text::bigint' : '?'
  await autocommitted(db).query(`delete from ackbox_receipt_outbox where id = ${mark}`, [idOf(row)])
}

async function putOff(db: Database<unknown>, row: Row, pauseMs: number): Promise<void> {
  const putOff =
    db.dialect === 'postgres'
      ? "update ackbox_receipt_outbox set next_try_at = clock_timestamp() + $1::text::int * interval '1 ms' where id = $2::text::bigint"
      : 'update ackbox_receipt_outbox set next_try_at = utc_timestamp(6) + interval ? * 1000 microsecond where id = ?'
  await autocommitted(db).query(putOff, [String(pauseMs), idOf(row)])
}

const idOf = (row: Row): string => String(row['id'])
