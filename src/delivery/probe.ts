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
  /** Called right before the probe is sent. */
  asked: () => void
}

/** Reasons of attempts that sent nothing. */
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
 * Probes the downstream, if an earlier attempt may have arrived. Returns the end of the attempt: `probed`, or failed if a required
 * answer is missing. Otherwise the task is to be sent. A string is the reason of a missing answer.
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
  if (answer.handled !== undefined) return answer.handled ? evidenceOf(answer.outcome) : undefined
  const reason = `probe: ${answer.reason}`
  if (!probe.required) return reason
  const { outcome } = answer
  return { ...(outcome?.kind === 'failed' ? outcome : {}), kind: 'failed', reason }
}

type Answered =
  | { handled: boolean; outcome: Outcome }
  | { handled: undefined; reason: string; outcome: Outcome | undefined }

async function ask(
  { headers, cutOff }: ProbeDeps,
  { delivery, downstream, transport, about, timeoutMs, asked }: Question,
  probe: LoadedProbe
): Promise<Answered> {
  let request: unknown
  try {
    request = await inHookTime('probe.request', probe.request(about))
  } catch (err) {
    return { handled: undefined, reason: `hook: ${reasonOf(err)}`, outcome: undefined }
  }
  // A probe changes nothing and has no body.
  if (downstream.transport === 'http') request = { method: 'GET', ...(request as object) }
  const context: SendContext = {
    downstream: downstream.name,
    limit: downstream.limit,
    timeoutMs,
    signal: cutOff,
    raw: '',
    headers: payload => headers.probe(delivery, payload)
  }
  let handled: unknown
  let outcome: Outcome
  try {
    asked()
    const answering = transport.send(request, context, answer => {
      if (!isAnswer(answer.status)) return false
      handled = probe.handled(answer as Parameters<LoadedProbe['handled']>[0], about)
      if (handled instanceof Promise) {
        handled.catch(() => {})
        handled = undefined
        throw new TypeError('probe.handled must not be async')
      }
      handled = handled === true
      return true
    })
    outcome = redactRequestSecrets(await answering, request)
  } catch (err) {
    return { handled: undefined, reason: `error: ${reasonOf(err)}`, outcome: undefined }
  }
  // With a warning the body was cut: the received part proves nothing.
  if (typeof handled === 'boolean' && outcome.warning === undefined) return { handled, outcome }
  const reason = outcome.kind === 'delivered' ? (outcome.warning ?? 'no answer') : outcome.reason
  return { handled: undefined, reason, outcome }
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
