import { batcher, type Batcher } from '../db/batch.ts'
import type { Applied, Asked, ReceiptRow } from '../db/moves.ts'
import type { Sql } from '../db/open.ts'
import { findReceiving, type Receiving } from '../db/receipts.ts'
import { Unavailable } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import type { LoadedHandler } from '../handler/define.ts'
import type { Metrics } from '../metrics.ts'
import { decide, type Policy } from '../task/decide.ts'
import { moves, type Move } from '../task/states.ts'
import { receiptResults, type ReceiptResult, type Status } from '../task/task.ts'
import type { Told, Tokens } from '../task/token.ts'
import { within } from './hook.ts'
import type { Log } from './log.ts'
import type { Owed, OwedOne } from './owed.ts'
import { prompt } from './prompt.ts'
import type { Record } from './record.ts'
import type { Surroundings } from './surroundings.ts'

/** A receipt as it came to /callback. `data` is JSON text as posted. */
export interface AskedReceipt {
  taskNo: string
  messageCode: string
  downstream?: string
  result: ReceiptResult
  reason?: string
  data?: string
  token: string | undefined
  remote: string
}

export type Received =
  | { kind: 'ok'; taskNo: string; status: Status; applied: boolean; late?: boolean }
  | 'unauthorized'
  | 'gone'
  | 'deleted'
  | 'wrong_code'
  | 'wrong_downstream'

export interface ReceiveDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  tokens: Tokens
  record: Record
  /** Where this process has a worker too. */
  owed: Owed | undefined
  surroundings: Surroundings
  random: () => number
  metrics: Pick<Metrics, 'received'>
  log: Log
  /** Characters of data that may wait to be written; in memory one is a byte, or two where not all are Latin-1. */
  mostText?: number
}

/** Receipts that may wait to be written before others are asked to come again. */
const mostWaiting = 5_000

interface Store {
  find: Batcher<{ taskNo: string; downstream: string }, Receiving | undefined>
  /**
   * Receipts that are handed over and not yet written, and the characters of their data. What is handed over is written
   * some day, whatever its sender heard: PostgreSQL may read for hours and not write, and each sender comes again.
   */
  waiting: number
  text: number
}

/** PROCESSING may stretch a receipt timeout until this long after the delivery. */
const processingMs = 24 * 3_600_000
const defaultPolicy: Policy = {
  times: undefined,
  backoff: { kind: 'exponential', firstMs: 10_000, maxMs: 3_600_000 },
  receiptTimeoutMs: 60_000
}

/**
 * Takes a receipt: token first, one that just went out from here or by MAC, without a query; then the handler's word; then one
 * guarded move in the shared group commit. Whoever is overtaken looks again. Throws Unavailable when PostgreSQL cannot take it now.
 */
export function receiver(deps: ReceiveDeps): (asked: AskedReceipt) => Promise<Received> {
  const store: Store = {
    find: batcher({
      max: 200,
      // One at a time: with two each had half as many receipts, and its statement costs as much.
      inFlight: 1,
      write: asked => findReceiving(deps.sql, asked)
    }),
    waiting: 0,
    text: 0
  }
  return async asked => {
    const known = knownOf(deps, asked)
    const token = known ?? deps.tokens.check(asked.token, asked.taskNo, deps.surroundings.now())
    if (!token) return 'unauthorized'
    if (asked.downstream !== undefined && asked.downstream !== token.downstream) return 'wrong_downstream'
    const { downstream, attempt } = token
    return take(deps, store, asked, { downstream, attempt }, known)
  }
}

async function take(
  deps: ReceiveDeps,
  store: Store,
  asked: AskedReceipt,
  token: Told,
  known: OwedOne | undefined
): Promise<Received> {
  if (known) {
    if (known.messageCode !== asked.messageCode) return 'wrong_code'
    const received = await keep(deps, store, asked, token, {
      taskId: known.taskId,
      result: 'HANDLED',
      move: { taskId: known.taskId, ...token, name: 'receive', handledBy: 'receipt', sending: true },
      status: 'SENDING'
    })
    if (received) return received
  }
  let result: ReceiptResult | undefined
  // Each turn that is overtaken saw the delivery change once more; it cannot change for ever.
  for (let turn = 0; turn < 10; turn++) {
    checkRoom(deps, store)
    const found = await prompt(
      deps.surroundings,
      store.find.add({ taskNo: asked.taskNo, downstream: token.downstream })
    )
    if (!found) return 'gone'
    if (found.task.messageCode !== asked.messageCode) return 'wrong_code'
    if (found.status === 'DELETED') return 'deleted'
    // The hook is asked once, and only of what can still change something.
    result ??= found.status === 'HANDLED' ? asked.result : await heard(deps, asked, token, found)
    const move = moveFor(deps, result, token, found)
    const received = await keep(deps, store, asked, token, {
      taskId: found.task.id,
      result,
      move,
      status: found.status
    })
    if (received) return received
  }
  throw new Unavailable('this delivery is changing too fast')
}

/** A plain HANDLED of what was sent from here needs nothing that is written down, but for the hook. */
function knownOf({ owed, handlers }: ReceiveDeps, asked: AskedReceipt): OwedOne | undefined {
  if (asked.result !== 'HANDLED' || handlers.get(asked.messageCode)?.onReceipt) return undefined
  return owed?.take(asked.token, asked.taskNo)
}

/** The receipt and its move, in the shared group commit; undefined when it was overtaken and nothing is written. */
async function keep(
  deps: ReceiveDeps,
  store: Store,
  asked: AskedReceipt,
  token: Told,
  one: { taskId: string; result: ReceiptResult; move: Move | null; status: Status }
): Promise<Received | undefined> {
  const { taskId, result, move } = one
  // Again: many may have looked at once, or waited for their hooks.
  checkRoom(deps, store)
  failpoint('receipt.before_commit')
  const applied = await prompt(
    deps.surroundings,
    write(deps, store, {
      move,
      receipt: {
        taskId,
        downstream: token.downstream,
        attempt: token.attempt,
        result,
        reason: asked.reason ?? null,
        data: asked.data ?? null,
        remote: asked.remote
      }
    })
  )
  failpoint('receipt.after_commit')
  if (move && (applied === 'stale' || applied === 'zombie')) return undefined
  deps.metrics.received(result, move !== null)
  deps.log.debug({ taskNo: asked.taskNo, ...token, result, move: move?.name, applied }, 'receipt.done')
  return {
    kind: 'ok',
    taskNo: asked.taskNo,
    status: move ? statusAfter(move) : one.status,
    applied: move !== null,
    ...(applied === 'late' ? { late: true } : {})
  }
}

/** Throws Unavailable while nothing more may be handed over: PostgreSQL is away, or too much waits for it. */
function checkRoom({ surroundings, mostText = 67_108_864 }: ReceiveDeps, store: Store): void {
  if (surroundings.isAway() || store.waiting > mostWaiting || store.text > mostText) throw new Unavailable()
}

/** It counts until it is written, however long ago its sender was told to come again. */
async function write(
  deps: ReceiveDeps,
  store: Store,
  asked: Asked & { receipt: ReceiptRow }
): Promise<Applied> {
  const length = asked.receipt.data?.length ?? 0
  store.waiting++
  store.text += length
  try {
    return await deps.record(asked)
  } finally {
    store.waiting--
    store.text -= length
  }
}

function statusAfter(move: Move): Status {
  const { to } = moves[move.name]
  return to === 'HANDLED' || to === 'FAILED' || to === 'DELETED' ? to : 'SENDING'
}

/** What the handler makes of it: only a HANDLED can be turned. A hook that throws, hangs or talks nonsense asks for a RETRY. */
async function heard(
  deps: ReceiveDeps,
  asked: AskedReceipt,
  token: Told,
  found: Receiving
): Promise<ReceiptResult> {
  const handler = deps.handlers.get(found.task.messageCode)
  if (!handler?.onReceipt) return asked.result
  try {
    const turned = await within(
      'onReceipt',
      handler.onReceipt({
        receipt: {
          result: asked.result,
          downstream: token.downstream,
          attempt: token.attempt,
          ...(asked.reason === undefined ? {} : { reason: asked.reason }),
          ...(asked.data === undefined ? {} : { data: JSON.parse(asked.data) as unknown })
        },
        task: found.task,
        body: handler.body.parse(JSON.parse(found.task.messageBody))
      })
    )
    if (asked.result !== 'HANDLED' || turned === undefined) return asked.result
    if ((receiptResults as readonly unknown[]).includes(turned)) return turned
    throw new TypeError(`onReceipt returned ${String(turned)}`)
  } catch (err) {
    deps.log.warn({ err, taskNo: asked.taskNo, downstream: token.downstream }, 'onReceipt.threw')
    return asked.result === 'HANDLED' ? 'RETRY' : asked.result
  }
}

/** The move a receipt asks for; null when it can change nothing and is only kept. */
function moveFor(deps: ReceiveDeps, result: ReceiptResult, token: Told, found: Receiving): Move | null {
  const key = { taskId: found.task.id, downstream: token.downstream, attempt: token.attempt }
  const ofRound = token.attempt >= found.roundFrom && token.attempt <= found.attempt
  if (result === 'HANDLED') {
    if (!ofRound || (found.status !== 'SENDING' && found.status !== 'FAILED')) return null
    const move: Move = { ...key, name: 'receive', handledBy: 'receipt' }
    return found.status === 'SENDING' ? { ...move, sending: true } : move
  }
  if (!ofRound || token.attempt !== found.attempt || found.status !== 'SENDING') return null
  const policy =
    deps.handlers.get(found.task.messageCode)?.downstreams.find(one => one.name === token.downstream)
      ?.policy ?? defaultPolicy
  if (result === 'PROCESSING') {
    const leftMs = found.deliveredMs === null ? 0 : processingMs - found.deliveredMs
    if (found.phase === 'IN_FLIGHT' || leftMs <= 0) return null
    return { ...key, name: 'extend', afterMs: Math.min(policy.receiptTimeoutMs, leftMs) }
  }
  // It is waiting for its next try already; only FAILED still changes that.
  if (result === 'RETRY' && found.phase === 'WAITING') return null
  const { move: name, ...more } = decide(
    { kind: 'receipt', result },
    {
      triesLeft: found.triesLeft,
      lost: found.lost,
      needsReceipt: found.needsReceipt,
      retryTimes: found.task.retryTimes
    },
    policy,
    deps.random()
  )
  return { ...key, name, ...more }
}
