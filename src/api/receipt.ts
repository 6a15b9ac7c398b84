import { cutText, Problem } from '../runtime/errors.ts'
import type { ApiDeps } from './deps.ts'
import { problemOf } from './problem.ts'
import { fit, readBody } from './body.ts'
import { maxDataBytes, receiptBody } from './requests.ts'
import { defined } from '../domain/optional-members.ts'

/** The result of an accepted receipt. */
export type TakenReceipt = Extract<Awaited<ReturnType<ApiDeps['receive']>>, object>

const longestReason = 1_000
/** A text that is too long must not cost the receipt. */
function shortened(reason: string): string {
  if (reason.length <= longestReason) return reason
  const begin = cutText(reason, longestReason)
  // A copy: a slice would keep the whole text in memory while the receipt waits for PostgreSQL.
  return Buffer.from(begin, 'utf16le').toString('utf16le')
}

/**
 * A receipt as posted to /callback or read from a queue: its JSON, and the token of the delivery. Throws the Problem with the
 * reason of a refusal, or Unavailable.
 */
export async function takeReceipt(
  deps: Pick<ApiDeps, 'receive'>,
  body: unknown,
  token: string | undefined,
  remote: string,
  isQueued = false
): Promise<TakenReceipt> {
  const read = readBody(body, 'receipt')
  const { taskNo, messageCode, downstream, result = 'HANDLED', reason } = fit(receiptBody, read.value)
  const data = read.bodyText()
  if (read.bodyBytes() > maxDataBytes) {
    throw new Problem('DATA_TOO_LARGE', `${read.bodyBytes()} bytes of at most ${maxDataBytes}`, {
      pointer: '/data'
    })
  }
  const received = await deps.receive({
    taskNo,
    messageCode,
    result,
    ...defined({ downstream, reason: reason && shortened(reason), data }),
    token,
    remote,
    ...(isQueued && { isQueued })
  })
  switch (received) {
    case 'unauthorized':
      throw new Problem('BAD_TOKEN')
    case 'gone':
      throw new Problem('TASK_NOT_FOUND')
    case 'deleted':
      throw new Problem('TASK_DELETED')
    case 'wrong_code':
      throw new Problem('WRONG_CODE', '', { pointer: '/messageCode' })
    case 'wrong_downstream':
      throw new Problem('WRONG_DOWNSTREAM', '', { pointer: '/downstream' })
    default:
      return received
  }
}

/** Whose fault a refusal is. A refusal that is not the sender's fault may be over when the receipt comes again. */
export function faultOf(err: unknown): 'sender' | 'database' | 'ours' {
  const { code } = problemOf(err)
  if (code === 'UNAVAILABLE') return 'database'
  return code === 'INTERNAL' ? 'ours' : 'sender'
}
