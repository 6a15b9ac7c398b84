// A receiver that handles each delivery once, in its own database.
import { databaseOf, type NativeOf } from '../adapter/drivers.ts'
import { read, type Message } from '../adapter/message.ts'
import { readVerifier, type Secrets } from '../adapter/signature.ts'
import {
  AdapterError,
  requireTransaction,
  txOf,
  withTables,
  type Database,
  type PostgresJs,
  type Tx
} from '../adapter/transaction.ts'
import { answerer, timer, type Once, InvalidSignature, TooOld } from './answer.ts'
import { frameworks, type Frameworks } from './frameworks.ts'
import { askedAbout, taskOf, type ReceivedTask } from './message.ts'
import { prune } from './prune.ts'
import * as receipts from './receipts.ts'
import * as received from './received.ts'
import { messageOf } from '../adapter/message-of.ts'

export interface ReceiverOptions<Db> {
  /** `npx ackbox key secret DOWNSTREAM` prints one. There are two during a rotation; undefined ones are left out. */
  secrets: Secrets
  /** The receiver's own database, with the tables of `npx ackbox consumer --print-ddl`. */
  db: Db
  /** The name of this consumer. Each consumer in the same database handles every delivery by itself. */
  consumer: string
  /** The address of Ackbox, for receipts. Default: the address in each request, which is as trustworthy as its connection. */
  url?: string | undefined
  /** Longer work is answered 202 or 503, ms. Keep it below the downstream's timeout in Ackbox. Default 8,000. */
  deadlineMs?: number | undefined
  /** The greatest age of an HTTP request's signature, ms. Default 300,000. */
  toleranceMs?: number | undefined
  /**
   * The greatest age of a message that `once` takes, ms, by its signed time. Default: none, because a queue may deliver late. The record of a
   * message is kept for as long. So nobody who may write to the queue can make an old message count again.
   */
  maxAgeMs?: number | undefined
  /** Longer bodies are answered 413. Default 1 MiB. */
  maxBytes?: number | undefined
  /** Called for errors that no answer contains: errors of a handler, and receipts that Ackbox refused. Default: console.error. */
  onError?: ((err: unknown, about: { taskNo?: string | undefined }) => void) | undefined
}

export interface OnceOptions {
  /** True: a message that needs a receipt gets one, which `run` sends. Default true. */
  receipt?: boolean | undefined
}

export interface Receiver<Native> extends Frameworks<Native> {
  /**
   * Runs `work` unless a committed transaction has handled this delivery. `tx` must be a transaction. Commit it afterwards, and only then
   * acknowledge the message. Throws InvalidSignature before any statement, and rethrows errors of the work: roll back then.
   */
  once<Result>(
    tx: Tx | PostgresJs,
    message: Message,
    work: (task: ReceivedTask) => Promise<Result>,
    options?: OnceOptions
  ): Promise<Once<Result>>
  /**
   * Sends receipts until the signal aborts, and ends within 2 s then. Any number of processes may run it. It never rejects. Of failures in a row,
   * `onError` gets the 1st, 10th, 100th and so on, and the pause grows to 30 s. An attempt that is longer than `limitMs` (default 60,000),
   * as when a database vanished, is given up, and the next one begins unless three such are pending.
   */
  run(options?: {
    signal?: AbortSignal | undefined
    pollMs?: number | undefined
    limitMs?: number | undefined
  }): Promise<void>
  /** Deletes the rows of deliveries that Ackbox no longer sends. Once a day is enough. */
  prune(): Promise<void>
}

/** An attempt that was given up stays in the queue of the library. All of them run at once when the database answers again. */
const mostLate = 3
/** Failures in a row double the pause up to this. */
const longestPauseMs = 30_000
/** For an attempt that runs when the signal aborts. A database that is not silent needs less. */
const lastMs = 2_000
const consumerForm = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/
/** For messages of a queue, which may have waited for a long time. forgetAfter and maxAgeMs limit their age. */
const anyAge = Infinity
/** Tolerance for clocks that differ. `prune` waits twice as long, by the clock of the database, so that may be half a day ahead of this one. */
const marginMs = 43_200_000

export function receiver<Db extends Database<unknown> | PostgresJs>(
  options: ReceiverOptions<Db>
): Receiver<NativeOf<Db>> {
  const { consumer, deadlineMs = 8_000, toleranceMs = 300_000, maxAgeMs, maxBytes = 1_048_576 } = options
  if (typeof consumer !== 'string' || !consumerForm.test(consumer))
    throw new AdapterError('consumer must be 1 to 64 of A-Z a-z 0-9 . _ - and start with a letter or digit.')
  const verify = readVerifier(options.secrets)
  const db = databaseOf(options.db)
  const url = callbackOf(options.url)
  const onError = options.onError ?? logTo(consumer)
  let wake = (): void => {}

  const open = (message: Message, mostMs: number): ReceivedTask => {
    const found = read(message)
    if (!verify(found, mostMs))
      throw new InvalidSignature(
        'This message was not signed by Ackbox with a secret of this receiver, or is not as it was signed.'
      )
    const task = taskOf(found)
    // Without an address, no receipt can be sent.
    if (url === undefined && !task.callbackUrl) task.callbackToken = undefined
    if (task.forgetAfter.getTime() + marginMs < Date.now())
      throw new TooOld(
        `The record of ${task.webhookId} may be deleted already: Ackbox sends it only until ${task.forgetAfter.toISOString()}.`
      )
    return task
  }

  /** The header `ackbox-forget-after` is not signed: it must not end the record of a message that would still be taken. */
  const requireYoung = (task: ReceivedTask, mostMs: number): void => {
    const until = Number(task.headers.get('webhook-timestamp')) * 1_000 + mostMs
    if (until < Date.now()) throw new TooOld(`${task.webhookId} was sent more than ${mostMs} ms ago.`)
    task.forgetAfter = new Date(Math.max(task.forgetAfter.getTime(), until))
  }

  /** Runs in a transaction. It calls `wantsReceipt` at the end. */
  const handle = async <Result>(
    tx: Tx,
    task: ReceivedTask,
    work: (task: ReceivedTask) => unknown,
    wantsReceipt: () => boolean
  ): Promise<Once<Result>> => {
    const begun = await received.begin(tx, consumer, task)
    const isFirst = 'mark' in begun
    let result: unknown
    try {
      if (isFirst) {
        const text = JSON.stringify(await work(task)) as string | undefined
        await received.keep(begun, text)
        result = text === undefined ? undefined : (JSON.parse(text) as unknown)
      } else result = begun.result
      if (task.callbackToken !== undefined && wantsReceipt())
        await receipts.write(tx, consumer, task, { result: 'HANDLED' })
    } catch (err) {
      if (isFirst) await received.takeBack(begun)
      throw err
    }
    return { first: isFirst, result: result as Result }
  }

  const answer = answerer<NativeOf<Db>>({
    deadlineMs,
    open: request => open(request, toleranceMs),
    transact: (task, work, wantsReceipt) =>
      db.begin(native => handle(db.within(native), task, () => work(native, task), wantsReceipt)),
    isHandled: webhookId => db.begin(native => received.isHandled(db.within(native), consumer, webhookId)),
    async tell(task, receipt) {
      await db.begin(native => receipts.write(db.within(native), consumer, task, receipt))
      wake()
    },
    written: () => wake(),
    onError
  })

  return {
    ...frameworks(answer, maxBytes, onError),
    async once(from, message, work, { receipt = true } = {}) {
      const task = open(message, anyAge)
      if (askedAbout(task) !== undefined)
        throw new AdapterError('This is a probe and no delivery: only the HTTP entry points answer it.')
      if (maxAgeMs !== undefined) requireYoung(task, maxAgeMs)
      const tx = txOf(from)
      await withTables(tx, () => requireTransaction(tx, 'ackbox_received in row exclusive mode'), 'consumer')
      return await handle(tx, task, work, () => receipt)
    },
    async run({ signal = new AbortController().signal, pollMs = 1_000, limitMs = 60_000 } = {}) {
      let late = 0
      let failures = 0
      const lateEnd = (): void => {
        late--
        wake()
      }
      while (!signal.aborted) {
        // Libraries wait for ever for a database that vanished. A late claim does no harm: others skip the rows that it locks or leases.
        const limit = timer(limitMs)
        const leave = (): void => {
          limit.restart(Math.min(lastMs, limitMs))
          wake()
        }
        signal.addEventListener('abort', leave, { once: true })
        try {
          const attempt =
            late < mostLate ? receipts.sendDue(db, { consumer, url, onError }, signal) : undefined
          const woken = new Promise<true>(resolve => {
            if (!attempt) wake = () => resolve(true)
          })
          const isMore = await Promise.race([attempt ?? woken, limit.passed])
          if (attempt && isMore !== undefined) failures = 0
          if (isMore) continue
          if (isMore === undefined) {
            if (attempt) late++
            attempt?.then(lateEnd, lateEnd)
            if (signal.aborted) return
            throw new Error(`Sending receipts took more than ${limitMs} ms: the database may not answer`)
          }
        } catch (err) {
          // Also for missing tables: nobody awaits `run`, and its rejection would end the process. An outage is not told each second.
          if (/^10*$/.test(String(++failures))) onError(err, {})
        } finally {
          limit.stop()
          signal.removeEventListener('abort', leave)
        }
        const pauseMs = Math.min(longestPauseMs, pollMs * 2 ** Math.min(failures - 1, 20))
        await new Promise<void>(resolve => {
          const done = (): void => {
            clearTimeout(timer)
            signal.removeEventListener('abort', done)
            resolve()
          }
          const timer = setTimeout(done, Math.max(pollMs, pauseMs))
          wake = done
          signal.addEventListener('abort', done, { once: true })
          if (signal.aborted) done()
        })
      }
    },
    prune: () => prune(db, consumer)
  }
}

const logTo =
  (consumer: string) =>
  (err: unknown, { taskNo = '' }: { taskNo?: string | undefined }): void => {
    const to = `ackbox/consumer ${consumer}:`
    // A caller with its own log sets onError.
    try {
      // oxlint-disable-next-line no-console -- see above
      console.error(to, taskNo, err)
    } catch {
      // oxlint-disable-next-line no-console -- the console reads the members of an error, which may throw
      console.error(to, taskNo, messageOf(err))
    }
  }

function callbackOf(url: string | undefined): string | undefined {
  if (url === undefined) return undefined
  if (!URL.canParse(url) || !/^https?:$/.test(new URL(url).protocol))
    throw new AdapterError('url must be the address of Ackbox, like https://ackbox.example.com')
  return `${url.replace(/\/+$/, '')}/callback`
}
