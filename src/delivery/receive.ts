import { batcher, type Batcher } from '../db/batch.ts'
import type { ReceiptRow } from '../db/transitions.ts'
import type { Sql } from '../db/pool.ts'
import {
  findReceiving,
  readBodies,
  setExtend,
  type BodilessTask,
  type ReceiptLookup,
  type ReceivingDelivery
} from '../db/receipts.ts'
import { Unavailable } from '../runtime/errors.ts'
import { failpoint } from '../runtime/failpoint.ts'
import { policyOf, retryTimesOf, type LoadedHandler } from '../handler/loaded.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { moveOnReceipt, receiptCounts } from '../domain/receipt-rule.ts'
import { isFirstTry, triesOf, type Policy } from '../domain/retry-policy.ts'
import { moves, statusOf, type Move } from '../domain/transitions.ts'
import type { ReceiptResult, Status } from '../domain/types.ts'
import type { TokenClaims, Tokens } from '../domain/tokens.ts'
import { askOnReceipt, type ReceiptDecision } from './on-receipt.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import { receiptCheck, type HandlersElsewhere } from './handlers-elsewhere.ts'
import { orUnavailable } from './unavailable.ts'
import type { Complete, Completed, MeasuredCompletion } from './complete.ts'

/** A receipt as posted to /callback. `data` is JSON text as posted. */
export interface ReceiptRequest {
  taskNo: string
  messageCode: string
  downstream?: string
  result: ReceiptResult
  reason?: string
  data?: string
  token: string | undefined
  remote: string
  /** It was read from a queue. */
  isQueued?: boolean
}

export type ReceiveResult =
  | { kind: 'ok'; taskNo: string; status: Status; applied: boolean; late?: boolean }
  | 'unauthorized'
  | 'gone'
  | 'deleted'
  | 'wrong_code'
  | 'wrong_downstream'

interface ReceiveDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  handlersElsewhere: HandlersElsewhere
  tokens: Tokens
  complete: Complete
  cluster: Cluster
  random: () => number
  metrics: Pick<Metrics, 'received'>
  log: Logger
  /** Limit of characters of data that wait to be written. In memory a character is a byte, or two if not all are Latin-1. */
  mostText?: number
  /** How long receipts of a messageCode that only another process handles wait in a queue. Default a minute. */
  queuedWaitMs?: number
  /** Limit of receipts that wait to be written. */
  mostWaiting?: number
}

interface Store {
  find: Batcher<ReceiptLookup, ReceivingDelivery | undefined>
  /** Reads the body of a task, for a hook. */
  bodies: Batcher<string, string | undefined>
  /**
   * Receipts that are not written yet, and the characters of their data. They are written sooner or later, whatever response
   * their senders got: PostgreSQL may be readable but not writable for hours, and each sender repeats its receipt.
   */
  waiting: number
  text: number
  /** Throws HandlerElsewhere if a receipt of a messageCode without a handler here must wait for another process. */
  checkElsewhere: ReturnType<typeof receiptCheck>
}

/**
 * Takes a receipt. It checks the token by MAC, without a query, then calls the handler's hook, then makes one guarded move in the
 * shared group commit. If another move was faster it reads the delivery again. Throws Unavailable if PostgreSQL cannot write it now.
 */
export function receiptTaker(deps: ReceiveDeps): (request: ReceiptRequest) => Promise<ReceiveResult> {
  const store: Store = {
    find: batcher({
      max: 200,
      // One at a time: with two, each would carry half of the receipts, and the statement costs as much.
      inFlight: 1,
      write: lookups => findReceiving(deps.sql, lookups)
    }),
    // Up to 5 MiB. Receipts of one task share a row.
    bodies: batcher({ max: 20, write: ids => readBodies(deps.sql, ids) }),
    waiting: 0,
    text: 0,
    checkElsewhere: receiptCheck(deps)
  }
  return async request => {
    const token = deps.tokens.check(request.token, request.taskNo, deps.cluster.now())
    if (!token) return 'unauthorized'
    if (request.downstream !== undefined && request.downstream !== token.downstream) return 'wrong_downstream'
    return take(deps, store, request, token)
  }
}

async function take(
  deps: ReceiveDeps,
  store: Store,
  request: ReceiptRequest,
  token: TokenClaims
): Promise<ReceiveResult> {
  const { downstream, attempt, issuedMs } = token
  let decision: ReceiptDecision | undefined
  // Each turn reads the delivery again, because it changed before the write. After ten turns the sender must repeat the receipt.
  for (let turn = 0; turn < 10; turn++) {
    checkRoom(deps, store)
    const found = await orUnavailable(
      deps.cluster,
      store.find.add({ taskNo: request.taskNo, downstream, issuedMs })
    )
    if (!found) return 'gone'
    if (found.task.messageCode !== request.messageCode) return 'wrong_code'
    if (found.status === 'DELETED') return 'deleted'
    const counts = receiptCounts(request.result, token.attempt, found)
    if (counts && !decision && !deps.handlers.has(found.task.messageCode))
      await store.checkElsewhere(request, { ...found.task, downstream })
    // The hook is called once, and only if the receipt can still change something: not for one of an earlier round.
    decision ??= counts
      ? await askOnReceipt(deps, request, token, found.task, id =>
          orUnavailable(deps.cluster, store.bodies.add(id))
        )
      : { result: request.result }
    if (!decision) return 'gone'
    const { result, extend } = decision
    // Before the receipt: a sender without an answer repeats the receipt, and the hook returns `extend` again.
    if (counts && extend !== undefined)
      await orUnavailable(deps.cluster, setExtend(deps.sql, found.task.id, extend), { mayBeLocked: true })
    const move = moveFor(deps, result, token, found)
    const received = await keep(deps, store, request, {
      taskId: found.task.id,
      downstream,
      attempt,
      result,
      move,
      status: found.status,
      task: found.task,
      isFirstTry:
        attempt <= 1 ||
        (attempt === found.attempt && isFirstTry(found, retryTimesOf(deps.handlers, found.task, downstream)))
    })
    if (received) return received
  }
  throw new Unavailable('this delivery changes too often: send the receipt again')
}

/** Writes the receipt and its move in the shared group commit. Undefined: another move was faster, and nothing is written. */
async function keep(
  deps: ReceiveDeps,
  store: Store,
  request: ReceiptRequest,
  one: Pick<ReceiptRow, 'taskId' | 'downstream' | 'attempt' | 'result'> & {
    move: Move | null
    status: Status
    task: BodilessTask
    isFirstTry: boolean
  }
): Promise<ReceiveResult | undefined> {
  const { taskId, downstream, attempt, result, move, task } = one
  // Checked again: many callers may have looked at the same time, or waited for their hooks.
  checkRoom(deps, store)
  failpoint('receipt.before_commit')
  const written = await orUnavailable(
    deps.cluster,
    write(deps, store, {
      move,
      task,
      isFirstTry: one.isFirstTry,
      receipt: {
        taskId,
        downstream,
        attempt,
        result,
        reason: request.reason ?? null,
        data: request.data ?? null,
        remote: request.remote
      }
    }),
    { mayBeLocked: true }
  )
  failpoint('receipt.after_commit')
  if (move && (written === 'stale' || written === 'recorded')) return undefined
  deps.metrics.received(result, move !== null)
  deps.log.debug(
    { taskNo: request.taskNo, downstream, attempt, result, move: move?.name, applied: written },
    'receipt.done'
  )
  const status = move ? statusOf(moves[move.name].to) : one.status
  if (move && status !== 'SENDING')
    deps.log.ended?.({ status, taskNo: request.taskNo, downstream, attempt, by: 'receipt' })
  return {
    kind: 'ok',
    taskNo: request.taskNo,
    status,
    applied: move !== null,
    ...(written === 'late' ? { late: true } : {})
  }
}

/** Throws Unavailable if PostgreSQL is away, or if too many receipts wait to be written. */
function checkRoom({ cluster, mostText = 67_108_864, mostWaiting = 5_000 }: ReceiveDeps, store: Store): void {
  if (cluster.isDatabaseAway() || store.waiting > mostWaiting || store.text > mostText)
    throw new Unavailable()
}

/** A receipt counts as waiting until it is written, even if its sender has long got the answer to repeat it. */
async function write(
  deps: ReceiveDeps,
  store: Store,
  completion: MeasuredCompletion & { receipt: ReceiptRow }
): Promise<Completed> {
  const length = completion.receipt.data?.length ?? 0
  store.waiting++
  store.text += length
  try {
    return await deps.complete(completion)
  } finally {
    store.waiting--
    store.text -= length
  }
}

/** The move for a receipt. Null: it changes nothing and is only stored. */
function moveFor(
  deps: ReceiveDeps,
  result: ReceiptResult,
  { attempt, downstream }: TokenClaims,
  found: ReceivingDelivery
): Move | null {
  const { id: taskId, orderingKey, messageCode } = found.task
  const policy = (): Policy => policyOf(deps.handlers, messageCode, downstream)
  const move = moveOnReceipt(result, attempt, { ...found, ...triesOf(found) }, policy, deps.random())
  return move && { ...move, taskId, downstream, attempt, orderingKey }
}
