// The answer to a request, and its time. A 2xx with `ackbox-result: HANDLED` always follows the commit. A 202 only announces a receipt,
// which the transaction itself writes.
import { askedAbout, type ReceivedTask } from './message.ts'
import type { Receipt } from './receipts.ts'
import { isBusy } from './received.ts'
import { AdapterError } from '../adapter/transaction.ts'

/**
 * Thrown to retry later: the work is rolled back, and Ackbox sends again after its backoff, at the earliest in `afterMs` (at most 1 h). After
 * a 202 the backoff alone counts: a receipt has no time.
 */
export class Retry extends Error {
  override name = 'Retry'
  readonly afterMs: number
  constructor(afterMs = 1_000, options?: ErrorOptions) {
    super(`Not now: again in ${afterMs} ms.`, options)
    this.afterMs = afterMs
  }
}

/** Thrown to refuse permanently: the work is rolled back, and the delivery ends FAILED with an alarm. Operators see the reason. */
export class Refuse extends Error {
  override name = 'Refuse'
  readonly reason: string
  constructor(reason: string, options?: ErrorOptions) {
    super(reason, options)
    this.reason = reason
  }
}

/** The message was not signed with a known secret, or its bytes were changed. No statement ran in the database. */
export class InvalidSignature extends AdapterError {
  override name = 'InvalidSignature'
}

/** The message arrived after its forgetAfter, so the record of an earlier handling may already be deleted; or it is older than maxAgeMs. */
export class TooOld extends AdapterError {
  override name = 'TooOld'
}

/** A handler's work, in its own transaction. The result is stored as JSON and is the answer, also to repeats. */
export type Work<Native> = (tx: Native, task: ReceivedTask) => unknown

export interface Once<Result> {
  /** False: an earlier transaction did the work. */
  first: boolean
  /**
   * The result of the work as it is stored, or the stored result of the earlier transaction. It has what JSON keeps: a Date is text, and
   * what is undefined is not there.
   */
  result: Result
}

export interface HttpRequest {
  headers: unknown
  body: Uint8Array
}

export interface Answer {
  status: number
  headers: Record<string, string>
  /** JSON, or empty. */
  body: string
}

export interface AnswerDeps<Native> {
  deadlineMs: number
  /** Throws InvalidSignature and TooOld. */
  open(request: HttpRequest): ReceivedTask
  /** Begins a transaction, handles the task, commits. It calls `wantsReceipt` once, after the work. */
  transact(task: ReceivedTask, work: Work<Native>, wantsReceipt: () => boolean): Promise<Once<unknown>>
  /** True: a committed transaction has handled this delivery. */
  isHandled(webhookId: string): Promise<boolean>
  /** Writes a receipt in a separate transaction. */
  tell(task: ReceivedTask, receipt: Receipt): Promise<void>
  /** Called when a transaction with a receipt has committed. */
  written(): void
  onError(err: unknown, about: { taskNo?: string | undefined }): void
}

const busyAfterMs = 1_000
/** Ackbox has the same limit. */
const longestWaitMs = 3_600_000

export function answerer<Native>(
  deps: AnswerDeps<Native>
): (request: HttpRequest, work: Work<Native>) => Promise<Answer> {
  return async (request, work) => {
    let task: ReceivedTask
    try {
      task = deps.open(request)
    } catch (err) {
      if (err instanceof InvalidSignature) return plain(401)
      if (err instanceof TooOld) return plain(410, { reason: err.message })
      throw err
    }
    const about = askedAbout(task)
    if (about !== undefined) {
      const handled = await deps.isHandled(about)
      return plain(handled ? 200 : 404, { handled })
    }
    /** The status that was answered before the end of the work. 0: no answer yet. */
    let early: 0 | 202 | 503 = 0
    /** The work is done, and its transaction has no receipt. The end of the transaction decides the answer. */
    let isDecided = false
    const working = deps
      .transact(task, work, () => {
        isDecided = early === 0
        return early === 202
      })
      .then(
        ({ result }): Answer => ({
          ...plain(200, result ?? {}),
          headers: { ...json, 'ackbox-result': 'HANDLED' }
        }),
        (err: unknown) => failed(deps, task, err)
      )
      .then(async answer => {
        if (early === 202) await afterwards(deps, task, answer)
        return answer
      })
    const deadline = timer(deps.deadlineMs)
    const inTime = await Promise.race([working, deadline.passed])
    deadline.stop()
    if (inTime) return inTime
    if (isDecided) return await working
    early = task.callbackToken === undefined ? 503 : 202
    return early === 202 ? plain(202, {}) : again(busyAfterMs)
  }
}

/** The answer to work that was rolled back. It contains nothing of an unexpected error. */
function failed<Native>({ onError }: AnswerDeps<Native>, { taskNo }: ReceivedTask, err: unknown): Answer {
  try {
    if (err instanceof Retry) return again(err.afterMs)
    if (err instanceof Refuse) return plain(410, { reason: err.reason })
    if (isBusy(err)) return again(busyAfterMs)
  } catch {} // what was thrown cannot be read
  onError(err, { taskNo })
  return plain(500)
}

/** After a 202, a receipt reports the result instead of the answer. */
async function afterwards<Native>(
  { tell, written, onError }: AnswerDeps<Native>,
  task: ReceivedTask,
  { status, body }: Answer
): Promise<void> {
  if (status === 200) return written()
  try {
    if (status === 410) await tell(task, { result: 'FAILED', ...(JSON.parse(body) as { reason: string }) })
    else await tell(task, { result: 'RETRY' })
  } catch (err) {
    // Without a receipt, Ackbox sends the task again.
    onError(err, { taskNo: task.taskNo })
  }
}

const json = { 'content-type': 'application/json' }

export const plain = (status: number, body?: unknown): Answer =>
  body === undefined
    ? { status, headers: {}, body: '' }
    : { status, headers: json, body: JSON.stringify(body) }

function again(afterMs: number): Answer {
  const seconds = Math.ceil(Math.min(Math.max(afterMs, 0), longestWaitMs) / 1_000)
  return { status: 503, headers: { 'retry-after': String(seconds) }, body: '' }
}

export function timer(ms: number): { passed: Promise<undefined>; stop(): void; restart(ms: number): void } {
  let stop = (): void => {}
  let restart: (ms: number) => void = () => {}
  const passed = new Promise<undefined>(resolve => {
    const end = (): void => resolve(undefined)
    let timeout = setTimeout(end, ms)
    stop = () => clearTimeout(timeout)
    restart = next => {
      stop()
      timeout = setTimeout(end, next)
    }
  })
  return { passed, stop, restart }
}
