// One attempt, from its hooks to the answer of the downstream.
import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { redactRequestSecrets } from '../domain/redact.ts'
import type { Move } from '../domain/transitions.ts'
import type { AttemptEnd, Outcome } from '../domain/types.ts'
import type { LoadedDownstream, LoadedHandler } from '../handler/loaded.ts'
import { reasonOf } from '../runtime/errors.ts'
import { limitedSignal } from '../runtime/limited-signal.ts'
import { failpoint, failpointAmid } from '../runtime/failpoint.ts'
import type { Metrics } from '../runtime/metrics.ts'
import type { Transport } from '../transport/types.ts'
import type { DeliveryHeaders } from './headers.ts'
import { inHookTime, LazyHookContext, runBeforeSend } from './hooks.ts'
import { forgetAt, timeLeft, type LeaseDeps, type LeasedDelivery } from './lease.ts'
import type { SendTime } from './load.ts'
import { askDownstream } from './probe.ts'
import { sentRequest, type SignedRequest } from './sent-request.ts'

export interface AttemptDeps extends LeaseDeps {
  sql: Sql
  handlers: ReadonlyMap<string, LoadedHandler>
  transports: { readonly [name: string]: Transport }
  /** The current limits by downstream: an operator may have changed them. */
  limits?: ReadonlyMap<string, SendTime & { concurrency: number; pipelining?: number }>
  /** Called for each delivery that starts in time: the room in its queue depends on it. */
  started: (downstream: string) => void
  headers: DeliveryHeaders
  /** The secrets of the settings, which what was sent is shown without. */
  secrets: readonly string[]
  /** Aborts at the end of the shutdown time: open sends are cut off. */
  cutOff: AbortSignal
  metrics: Pick<Metrics, 'queueLag'>
}

export const keyOf = ({
  task,
  downstream,
  attempt
}: LoadedDelivery): Pick<Move, 'taskId' | 'downstream' | 'attempt' | 'orderingKey'> => ({
  taskId: task.id,
  downstream,
  attempt,
  orderingKey: task.orderingKey
})

/** The outcome of the attempt, or the move of a delivery that is not sent. */
export async function attempt(
  deps: AttemptDeps,
  own: LeasedDelivery,
  downstream: LoadedDownstream,
  rate?: Rate
): Promise<AttemptEnd | Move> {
  const { delivery } = own
  const key = keyOf(delivery)
  if (performance.now() >= forgetAt(deps.headers, own))
    return { ...key, name: 'fail', reason: 'EXPIRED', ifStill: 'IN_FLIGHT' }
  if (timeLeft(deps, own, downstream.limit.timeoutMs) === 0) return { ...key, name: 'release' }
  deps.started(delivery.downstream)
  const about = new LazyHookContext(deps.handlers, delivery)
  const transport = deps.transports[downstream.transport]
  if (!transport) return { kind: 'failed', reason: `no transport ${downstream.transport}` }
  const held = downstream.beforeSend && (await runBeforeSend(downstream.beforeSend, about, key))
  if (held) return held
  const sending: OpenSend = {
    own,
    downstream,
    transport,
    about,
    deadline: Infinity,
    unanswered: undefined,
    payload: undefined,
    ours: undefined,
    rate
  }
  if (downstream.probe && delivery.attempt > 1) {
    const ended = await probe(deps, sending)
    if (ended) return ended
  }
  let request: unknown
  try {
    request = await inHookTime('request', downstream.request(about))
  } catch (err) {
    return { kind: 'failed', reason: `hook: ${reasonOf(err)}` }
  }
  return send(deps, sending, request)
}

/** The place of an attempt in the rate of its downstream: one request. A probe takes it, and the send after it takes another. */
export interface Rate {
  limiter: { takeToken(signal: AbortSignal): Promise<void>; borrowToken(): void }
  hasProbed: boolean
}

interface OpenSend extends Pick<SignedRequest, 'payload' | 'ours'> {
  own: LeasedDelivery
  downstream: LoadedDownstream
  transport: Transport
  about: LazyHookContext
  /** The end of the send, ms of our monotonic clock. A probe and the send after it share the timeout of one send. */
  deadline: number
  /** The reason why a probe has no answer. */
  unanswered: string | undefined
  /** Undefined: there is no probe. */
  rate: Rate | undefined
}

/** The end of the attempt, or undefined: the task is to be sent. */
async function probe(deps: AttemptDeps, sending: OpenSend): Promise<AttemptEnd | Move | undefined> {
  const { own, downstream, transport, about } = sending
  const { delivery } = own
  const timeoutMs = timeLeft(deps, own, downstream.limit.timeoutMs) / 2
  if (timeoutMs === 0) return { ...keyOf(delivery), name: 'release' }
  sending.deadline = performance.now() + downstream.limit.timeoutMs
  const asked = (): void => {
    if (sending.rate) sending.rate.hasProbed = true
  }
  const probed = await askDownstream(deps, { delivery, downstream, transport, about, timeoutMs, asked })
  if (typeof probed === 'object') return probed
  sending.unanswered = probed
  return undefined
}

async function send(deps: AttemptDeps, sending: OpenSend, request: unknown): Promise<AttemptEnd | Move> {
  const { own, downstream, transport, about, deadline, unanswered, rate } = sending
  const { delivery } = own
  if (rate?.hasProbed && !(await mayFollow(deps, rate, deadline)))
    return { ...keyOf(delivery), name: 'release' }
  failpoint('execute.before_send')
  // Checked again right before the send: a hook, or a stopped process, may have used up the lease.
  const leftMs = timeLeft(deps, own, downstream.limit.timeoutMs)
  if (leftMs === 0) return { ...keyOf(delivery), name: 'release' }
  // If a probe has used up the time, the attempt fails by its timeout and counts.
  const timeoutMs = Math.min(leftMs, Math.max(1, deadline - performance.now()))
  deps.metrics.queueLag(downstream.name, delivery.claimedMs + performance.now() - own.leasedFrom)
  const { accepted } = downstream
  let outcome: Outcome
  try {
    const answering = transport.send(
      request,
      {
        downstream: downstream.name,
        limit: deps.limits?.get(downstream.name) ?? downstream.limit,
        timeoutMs,
        signal: deps.cutOff,
        raw: delivery.task.messageBody,
        ...(delivery.task.orderingKey !== null && { orderingKey: delivery.task.orderingKey }),
        headers(payload) {
          sending.payload = payload
          return (sending.ours = deps.headers.headers(delivery, payload))
        }
      },
      accepted && (answer => accepted(answer as Parameters<typeof accepted>[0], about))
    )
    outcome = redactRequestSecrets(await failpointAmid('execute.after_send', answering), request)
  } catch (err) {
    // A transport reads what a handler put into its request, which may be anything.
    return { kind: 'failed', reason: `error: ${reasonOf(err)}` }
  }
  // Most attempts are the first and delivered: their request can be made again.
  const whole =
    outcome.kind === 'delivered' && delivery.attempt === 1
      ? outcome
      : withRequest(deps, sending, outcome, request)
  return unanswered === undefined || whole.warning !== undefined ? whole : { ...whole, warning: unanswered }
}

/**
 * Waits until the rate allows the send after a probe, for at most half of the time that the probe has left. Then it is sent all the same, and
 * the next start waits for longer: released, it would be probed again, and with a low rate it would never be sent. False: the process stops.
 */
async function mayFollow({ stopping }: AttemptDeps, { limiter }: Rate, deadline: number): Promise<boolean> {
  const { signal, end } = limitedSignal(stopping, (deadline - performance.now()) / 2)
  try {
    await limiter.takeToken(signal)
    return true
  } catch {
    if (stopping.aborted) return false
    limiter.borrowToken()
    return true
  } finally {
    end()
  }
}

function withRequest(
  { secrets }: AttemptDeps,
  { downstream, payload, ours }: OpenSend,
  outcome: Outcome,
  made: unknown
): Outcome {
  const request = sentRequest(downstream.transport, { request: made, payload, ours }, secrets)
  return request ? { ...outcome, request } : outcome
}
