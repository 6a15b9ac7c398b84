import { findEarlierAttempts } from '../db/attempts.ts'
import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import type { AttemptEnd, Outcome } from '../domain/types.ts'
import { redactRequestSecrets } from '../domain/redact.ts'
import type { LoadedDownstream, LoadedProbe } from '../handler/loaded.ts'
import type { SendContext, Transport } from '../transport/types.ts'
import type { DeliveryHeaders } from './headers.ts'
import { inHookTime, type LazyHookContext } from './hooks.ts'
import { reasonOf } from '../runtime/errors.ts'

interface ProbeDeps {
  sql: Sql
  headers: DeliveryHeaders
  /** Aborts at the end of the shutdown time. */
  cutOff: AbortSignal
}

interface Question {
  delivery: LoadedDelivery
  downstream: LoadedDownstream
  transport: Transport
  about: LazyHookContext
  timeoutMs: number
}

/** After these reasons nothing had been sent. */
const unsent =
  /^(?:connect_timeout|connection_refused|unreachable|dns:|tls:|blocked_target|bad_request|hook:|probe:|no transport|no broker|credentials)/
/** Statuses of a server that gave up waiting: the work may go on. */
const gaveUp = new Set([408, 504])

type Recorded = Awaited<ReturnType<typeof findEarlierAttempts>>['attempts'][number]

/** Whether the downstream may have handled it: it has the request, or may have it, and gave no clear refusal. */
export function mayHaveArrived({ outcome, reason, status_code: status }: Recorded): boolean {
  if (outcome !== 'failed') return outcome === 'delivered'
  if (reason?.startsWith('timeout')) return true
  if (reason !== null && unsent.test(reason)) return false
  // The downstream refused it, in an answer that was read to its end.
  if (reason === 'not_accepted' || reason?.startsWith('exception:')) return false
  return status === null || status < 300 || gaveUp.has(status)
}

/**
 * Asks the downstream whether it has handled the task, if an earlier attempt may have arrived. The end of the attempt: `probed`,
 * or failed where an answer is required and there is none. Else it is to be sent; a string says why there was no answer.
 */
export async function askDownstream(
  deps: ProbeDeps,
  question: Question
): Promise<AttemptEnd | string | undefined> {
  const { delivery, downstream } = question
  const { probe } = downstream
  if (!probe) return undefined
  const { task, attempt } = delivery
  const earlier = await findEarlierAttempts(deps.sql, {
    taskId: task.id,
    downstream: downstream.name,
    attempt
  })
  if (earlier.unrecorded <= 0 && !earlier.attempts.some(mayHaveArrived)) return undefined
  const answer = await ask(deps, question, probe)
  if (answer.said !== undefined) return answer.said ? evidenceOf(answer.outcome) : undefined
  const reason = `probe: ${answer.reason}`
  if (!probe.required) return reason
  const { outcome } = answer
  return { ...(outcome?.kind === 'failed' ? outcome : {}), kind: 'failed', reason }
}

type Answered =
  | { said: boolean; outcome: Outcome }
  | { said: undefined; reason: string; outcome: Outcome | undefined }

async function ask(
  { headers, cutOff }: ProbeDeps,
  { delivery, downstream, transport, about, timeoutMs }: Question,
  probe: LoadedProbe
): Promise<Answered> {
  let request: unknown
  try {
    request = await inHookTime('probe.request', probe.request(about))
  } catch (err) {
    return { said: undefined, reason: `hook: ${reasonOf(err)}`, outcome: undefined }
  }
  // A question changes nothing and has no body.
  if (downstream.transport === 'http') request = { method: 'GET', ...(request as object) }
  const context: SendContext = {
    downstream: downstream.name,
    limit: downstream.limit,
    timeoutMs,
    signal: cutOff,
    raw: '',
    headers: payload => headers.probe(delivery, payload)
  }
  let said: unknown
  const outcome = redactRequestSecrets(
    await transport.send(request, context, answer => {
      if (!isAnswer(answer.status)) return false
      said = probe.handled(answer as Parameters<LoadedProbe['handled']>[0], about)
      if (said instanceof Promise) {
        said.catch(() => {})
        said = undefined
        throw new TypeError('probe.handled must not be async')
      }
      said = said === true
      return true
    }),
    request
  )
  // With a warning the body was cut short: the rest proves nothing.
  if (typeof said === 'boolean' && outcome.warning === undefined) return { said, outcome }
  const reason = outcome.kind === 'delivered' ? (outcome.warning ?? 'no answer') : outcome.reason
  return { said: undefined, reason, outcome }
}

/** Other statuses do not answer the question: a gateway, a login, an overload. */
const isAnswer = (status: number): boolean =>
  (status >= 200 && status < 300) || status === 404 || status === 410

function evidenceOf({ status, answer, headers, address }: Outcome): AttemptEnd {
  return {
    kind: 'probed',
    ...(status === undefined ? {} : { status }),
    ...(answer === undefined ? {} : { answer }),
    ...(headers === undefined ? {} : { headers }),
    ...(address === undefined ? {} : { address })
  }
}
