// What a request is answered, and when. A 2xx with `ackbox-result: HANDLED` always follows the commit; a 202 says only that a receipt
// follows, which the transaction itself writes.
import type { ReceivedTask } from './message.ts'
import type { Receipt } from './receipts.ts'
import { isBusy } from './received.ts'
import { AdapterError } from '../adapter/transaction.ts'

/** Not now: the work is rolled back, and Ackbox sends again after its backoff, at the earliest in `afterMs` (1 s by default, 1 h at most). */
export class Retry extends Error {
  override name = 'Retry'
  readonly afterMs: number
  constructor(afterMs = 1_000, options?: ErrorOptions) {
    super(`Not now: again in ${afterMs} ms.`, options)
    this.afterMs = afterMs
  }
}

/** Never: the work is rolled back, and the delivery ends FAILED with an alarm. Operators read the reason. */
export class Refuse extends Error {
  override name = 'Refuse'
  readonly reason: string
  constructor(reason: string, options?: ErrorOptions) {
    super(reason, options)
    this.reason = reason
  }
}

/** Not signed with a known secret, or its bytes were changed on the way. Nothing was asked of the database. */
export class InvalidSignature extends AdapterError {
  override name = 'InvalidSignature'
}

/** It lay somewhere until after the time that Ackbox promised to send it at: whether it was handled may be forgotten. */
export class TooOld extends AdapterError {
  override name = 'TooOld'
}

/** A handler's work, in a transaction of its own. What it returns is kept as JSON and answered, to repeats too. */
export type Work<Native> = (tx: Native, task: ReceivedTask) => unknown

export interface Once<Result> {
  /** False: an earlier transaction did the work. */
  first: boolean
  /** What the work returned, or returned then: as JSON kept it. */
  result: Result
}

export interface HttpRequest {
  headers: unknown
  body: Uint8Array
}

export interface Answer {
  status: number
  headers: Record<string, string>
  /** JSON, or nothing. */
  body: string
}

export interface AnswerDeps<Native> {
  deadlineMs: number
  /** Throws InvalidSignature and TooOld. */
  open(request: HttpRequest): ReceivedTask
  /** Begins, handles, commits. `wantsReceipt` is asked once, after the work. */
  transact(task: ReceivedTask, work: Work<Native>, wantsReceipt: () => boolean): Promise<Once<unknown>>
  /** Writes a receipt in a transaction of its own. */
  tell(task: ReceivedTask, receipt: Receipt): Promise<void>
  /** A transaction with a receipt has committed. */
  written(): void
  onError(err: unknown, about: { taskNo?: string | undefined }): void
}

const busyAfterMs = 1_000
/** Ackbox waits no longer either. */
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
    /** How the request was answered before the work was done; 0: not yet. */
    let early: 0 | 202 | 503 = 0
    /** The work is done, and its transaction has no receipt: its end is the answer. */
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

/** The answer of work that was rolled back. Of an error itself nothing is told outside. */
function failed<Native>({ onError }: AnswerDeps<Native>, { taskNo }: ReceivedTask, err: unknown): Answer {
  if (err instanceof Retry) return again(err.afterMs)
  if (err instanceof Refuse) return plain(410, { reason: err.reason })
  if (isBusy(err)) return again(busyAfterMs)
  onError(err, { taskNo })
  return plain(500)
}

/** After a 202 the receipt tells what the answer would have. */
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
    // Without a receipt Ackbox sends it again.
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

function timer(ms: number): { passed: Promise<undefined>; stop(): void } {
  let stop = (): void => {}
  const passed = new Promise<undefined>(resolve => {
    const timeout = setTimeout(() => resolve(undefined), ms)
    stop = () => clearTimeout(timeout)
  })
  return { passed, stop }
}
