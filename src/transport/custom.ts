import type { Evidence, Outcome } from '../domain/types.ts'
import { openSends } from './sends.ts'
import type { SendContext, Transport } from './types.ts'
import { bytesKept } from './http/answer.ts'
import { failed } from './failure.ts'
import { reasonOf } from '../runtime/errors.ts'

/** The second argument of a custom `send`. */
export interface CustomTools {
  /** Ms until the deadline of the attempt. */
  timeoutMs: number
  /** Aborts at the deadline, and when the process stops. Close open resources then: a later result is ignored. */
  signal: AbortSignal
  /** The headers that every other transport sends, signed over exactly this payload: `webhook-id` … `ackbox-callback-token`. */
  headers(payload: string | Uint8Array): Record<string, string>
}

/** The result of a custom `send`. An exception counts as `failed`, with its message as the reason. */
export type CustomOutcome =
  | ({ kind: 'delivered'; handled?: boolean } & CustomEvidence)
  | ({ kind: 'refused'; reason: string } & CustomEvidence)
  | ({ kind: 'failed'; reason: string; retryAfterMs?: number } & CustomEvidence)

/** The longest id that is stored. */
const mostMessageId = 512

interface CustomEvidence {
  /** The status code of the downstream's answer, if it has one. */
  status?: number
  /** The answer itself: at most 16 kB are kept. */
  answer?: string
  /** The id that the downstream gave the message. */
  messageId?: string
}

/** A handler's own `send`, wrapped for the transport. */
export interface CustomRequest {
  send(tools: CustomTools): unknown
}

/** The handler sends by itself. Deadline, record and retries are those of every transport. The egress guard does not check the send. */
export function customTransport(): Transport<CustomRequest> {
  const flying = openSends()
  return {
    name: 'custom',

    send({ send }, context) {
      const cut = new AbortController()
      const stop = (why: string): void => cut.abort(new Error(why))
      return flying.fly(context, flight => {
        flight.cut = stop
        return own(send, context, cut.signal)
      })
    },

    close() {
      flying.close()
      return Promise.resolve()
    }
  }
}

async function own(send: CustomRequest['send'], context: SendContext, signal: AbortSignal): Promise<Outcome> {
  try {
    const { timeoutMs } = context
    return read(await send({ timeoutMs, signal, headers: payload => context.headers(payload) }))
  } catch (error) {
    return failed(`send: ${reasonOf(error)}`)
  }
}

/** Plain JavaScript may return anything, and a forgotten `return` must not count as success. */
function read(made: unknown): Outcome {
  if (typeof made !== 'object' || made === null) return failed(`bad_outcome: send returned ${typeof made}`)
  const { kind, reason, handled, retryAfterMs, ...rest } = made as { [name: string]: unknown }
  const evidence = evidenceOf(rest)
  if (kind === 'delivered') return { kind, ...(handled === true ? { handled } : {}), ...evidence }
  const why = typeof reason === 'string' && reason !== '' ? reason.slice(0, 500) : 'without a reason'
  if (kind === 'refused') return { kind, reason: why, ...evidence }
  if (kind !== 'failed') return failed("bad_outcome: its kind must be 'delivered', 'refused' or 'failed'")
  const wait = typeof retryAfterMs === 'number' && retryAfterMs > 0 && Number.isFinite(retryAfterMs)
  return { kind, reason: why, ...(wait ? { retryAfterMs } : {}), ...evidence }
}

function evidenceOf({ status, answer, messageId }: { [name: string]: unknown }): Evidence {
  return {
    ...(Number.isInteger(status) && Math.abs(Number(status)) < 2 ** 31 ? { status: Number(status) } : {}),
    ...(typeof answer === 'string'
      ? { answer: Buffer.from(answer.slice(0, bytesKept)).subarray(0, bytesKept) }
      : {}),
    ...(typeof messageId === 'string' ? { messageId: messageId.slice(0, mostMessageId) } : {})
  }
}
