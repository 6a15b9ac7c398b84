import type { BodilessTask } from '../db/receipts.ts'
import type { LoadedHandler } from '../handler/loaded.ts'
import type { Logger } from '../runtime/logger.ts'
import type { TokenClaims } from '../domain/tokens.ts'
import { receiptResults, type ReceiptResult } from '../domain/types.ts'
import { inHookTime } from './hooks.ts'
import { textOf } from '../runtime/text-of.ts'

/** The decision of the handler's hook on a receipt. `extend` is JSON. */
export interface ReceiptDecision {
  result: ReceiptResult
  extend?: string
}

/**
 * The result after the handler's hook. Only HANDLED can be changed. A hook that throws, hangs or returns nonsense means RETRY. The body
 * is read only for a hook. Undefined: the task is gone.
 */
export async function askOnReceipt(
  deps: { handlers: ReadonlyMap<string, LoadedHandler>; log: Logger },
  request: { taskNo: string; result: ReceiptResult; reason?: string; data?: string },
  token: TokenClaims,
  bodiless: BodilessTask,
  readBody: (taskId: string) => Promise<string | undefined>
): Promise<ReceiptDecision | undefined> {
  const handler = deps.handlers.get(bodiless.messageCode)
  if (!handler?.onReceipt) return { result: request.result }
  const messageBody = await readBody(bodiless.id)
  if (messageBody === undefined) return undefined
  const task = { ...bodiless, messageBody }
  try {
    const returned = await inHookTime(
      'onReceipt',
      handler.onReceipt({
        receipt: {
          result: request.result,
          downstream: token.downstream,
          attempt: token.attempt,
          ...(request.reason === undefined ? {} : { reason: request.reason }),
          ...(request.data === undefined ? {} : { data: JSON.parse(request.data) as unknown })
        },
        task,
        body: handler.body.parse(JSON.parse(messageBody))
      })
    )
    return decisionOf(request.result, returned)
  } catch (err) {
    deps.log.warn({ err, taskNo: request.taskNo, downstream: token.downstream }, 'hook.on_receipt_failed')
    return { result: request.result === 'HANDLED' ? 'RETRY' : request.result }
  }
}

/** JavaScript may return anything. Throws for an invalid answer. */
function decisionOf(posted: ReceiptResult, returned: unknown): ReceiptDecision {
  const { result = posted, extend } =
    typeof returned === 'object' && returned !== null
      ? (returned as { result?: unknown; extend?: unknown })
      : { result: returned }
  if (!(receiptResults as readonly unknown[]).includes(result))
    throw new TypeError(`onReceipt returned ${textOf(returned)}`)
  const decision: ReceiptDecision = { result: posted === 'HANDLED' ? (result as ReceiptResult) : posted }
  if (extend === undefined) return decision
  const text = typeof extend === 'object' && !Array.isArray(extend) ? JSON.stringify(extend) : 'null'
  if (text === 'null' || text.length > mostExtend || unstorable.test(text))
    throw new TypeError(
      `onReceipt set an extend that is not an object of at most ${mostExtend} characters of JSON`
    )
  return { ...decision, extend: text }
}

/** Limit of characters of JSON, the same as for a POST. */
const mostExtend = 1_024
/** jsonb holds neither U+0000 nor half a surrogate pair. */
const unstorable = /(?<!\\)(?:\\\\)*\\u(?:0000|d[89a-f])/
