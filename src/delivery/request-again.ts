// The request of a delivery, made again without sending it: what would be sent now, and what a first attempt that was delivered has
// sent, which is not stored.
import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Reads } from '../db/reads.ts'
import { readStoredDeliveries } from '../db/stored-deliveries.ts'
import type { AttemptView, RequestView, TaskView } from '../db/views.ts'
import { versionText } from '../domain/ids.ts'
import { requestTexts, secretSettings, shownHeader } from '../domain/redact.ts'
import { downstreamOf, type LoadedDownstream, type LoadedHandler } from '../handler/loaded.ts'
import { cutText } from '../runtime/errors.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import type { Transport } from '../transport/types.ts'
import { shownError } from './dry-run.ts'
import type { DeliveryHeaders } from './headers.ts'
import { LazyHookContext } from './hooks.ts'
import { headersOf, sentRequest, type SignedRequest } from './sent-request.ts'

export interface RequestAgainDeps {
  reads: Reads
  handlers: ReadonlyMap<string, LoadedHandler>
  transports: { readonly [name: string]: Transport }
  headers: Pick<DeliveryHeaders, 'headers'>
  /** The settings that contain the secrets of handlers. */
  settings: Readonly<Record<string, string | undefined>>
}

/** What would be sent now. */
export interface RequestNow extends Omit<RequestView, 'computed' | 'unknown' | 'headerNames'> {
  taskNo: string
  downstream: string
  /** The number of the attempt. */
  attempt: number
  headers: [name: string, value: string][]
  /** The body, as far as it is text, without secrets. */
  body?: string
  /** The body is longer. */
  truncated?: true
  /** Why the attempt would fail before anything is sent. */
  error?: string
}

/** The time limits of a handler's `request`: alone, and for all of a task that is read. */
const [mostMs, mostReadMs] = [5_000, 1_000]
/** The characters of a body that are shown. */
const mostBody = 16_384

type NoRequest = { kind: 'not_found' } | { kind: 'no_handler' } | { kind: 'no_request'; error: string }

export async function requestNow(
  deps: RequestAgainDeps,
  taskNo: string,
  downstream: string
): Promise<RequestNow | NoRequest> {
  const stored = (await readStoredDeliveries(deps.reads, taskNo)).find(one => one.downstream === downstream)
  if (!stored) return { kind: 'not_found' }
  const delivery = { ...stored, attempt: stored.isInFlight ? stored.attempt : stored.attempt + 1 }
  const to = downstreamOf(deps.handlers, delivery.task.messageCode, downstream)
  if (!to) return { kind: 'no_handler' }
  const secrets = secretSettings(deps.settings)
  let made: Made
  try {
    made = await make(deps, delivery, to, mostMs)
  } catch (err) {
    return { kind: 'no_request', error: shownError(err, secrets) }
  }
  const text = requestTexts(made.request, secrets)
  const body = made.payload === undefined ? undefined : textOf(made.payload)
  const shown = body === undefined ? undefined : text(body)
  const { headerNames: _, ...facts } = viewOf(to, made, secrets)
  return {
    taskNo,
    downstream,
    attempt: delivery.attempt,
    ...facts,
    headers: headersOf(to.transport, made).map(([name, value]) => [
      name,
      typeof value === 'string' ? shownHeader(name, value, text) : '[bytes]'
    ]),
    ...(shown === undefined ? {} : { body: cutText(shown, mostBody) }),
    ...(shown !== undefined && shown.length > mostBody ? { truncated: true as const } : {}),
    ...(made.error === undefined ? {} : { error: text(made.error) })
  }
}

/** The task, with the requests that are made again. */
export async function withRequests(deps: RequestAgainDeps, task: TaskView): Promise<TaskView> {
  if (!task.deliveries.some(one => one.attempts?.some(isMadeAgain))) return task
  const stored = await readStoredDeliveries(deps.reads, task.taskNo)
  const secrets = secretSettings(deps.settings)
  const deliveries = await Promise.all(
    task.deliveries.map(async one => {
      const delivery = stored.find(({ downstream }) => downstream === one.downstream)
      if (!one.attempts || !delivery) return one
      const attempts = await Promise.all(
        one.attempts.map(async each =>
          isMadeAgain(each) ? { ...each, request: await madeAgain(deps, delivery, each, secrets) } : each
        )
      )
      return { ...one, attempts }
    })
  )
  return { ...task, deliveries }
}

type MadeAgain = AttemptView & { request: RequestView }

const isMadeAgain = (one: AttemptView): one is MadeAgain =>
  one.attempt === 1 && one.outcome === 'delivered' && one.request !== undefined

async function madeAgain(
  deps: RequestAgainDeps,
  delivery: LoadedDelivery,
  { attempt, request }: MadeAgain,
  secrets: readonly string[]
): Promise<RequestView> {
  const { handlerVersion } = request
  const to = downstreamOf(deps.handlers, delivery.task.messageCode, delivery.downstream)
  if (!to) return { handlerVersion, unknown: 'no_handler' }
  if (versionOf(to) !== handlerVersion) return { handlerVersion, unknown: 'handler_changed' }
  try {
    return {
      ...viewOf(to, await make(deps, { ...delivery, attempt }, to, mostReadMs), secrets),
      computed: true
    }
  } catch {
    return { handlerVersion, unknown: 'request_failed' }
  }
}

const versionOf = ({ handlerVersion = 0 }: LoadedDownstream): string => versionText(handlerVersion)

function viewOf(to: LoadedDownstream, made: Made, secrets: readonly string[]): RequestView {
  const { body, ...facts } = sentRequest(to.transport, made, secrets) ?? {}
  return {
    handlerVersion: versionOf(to),
    ...facts,
    ...(body && { bytes: body.bytes, sha256: Buffer.from(body.sha256).toString('hex') })
  }
}

interface Made extends SignedRequest {
  error?: string
}

/** `beforeSend` is not called, because it may have effects. */
async function make(
  deps: RequestAgainDeps,
  delivery: LoadedDelivery,
  to: LoadedDownstream,
  timeoutMs: number
): Promise<Made> {
  const asked = Promise.resolve(to.request(new LazyHookContext(deps.handlers, delivery)))
  const request: unknown = await withTimeout(asked, timeoutMs, () => {
    throw new Error(`request took longer than ${timeoutMs / 1_000} s`)
  })
  const made: Made = { request, payload: undefined, ours: undefined }
  const transport = deps.transports[to.transport]
  // A custom `send` would send.
  if (!transport || to.transport === 'custom') return made
  // Every transport signs the body before it opens or writes anything: the send ends there.
  const stop = new Error('made, not sent')
  try {
    const outcome = await transport.send(request, {
      downstream: to.name,
      timeoutMs,
      signal: never,
      raw: delivery.task.messageBody,
      ...(delivery.task.orderingKey !== null && { orderingKey: delivery.task.orderingKey }),
      headers(payload) {
        made.payload = payload
        made.ours = deps.headers.headers(delivery, payload)
        throw stop
      }
    })
    if ('reason' in outcome) made.error = outcome.reason
  } catch (err) {
    if (err !== stop) throw err
  }
  return made
}

const never = new AbortController().signal

/** Undefined: it is not UTF-8. */
function textOf(payload: string | Uint8Array): string | undefined {
  if (typeof payload === 'string') return payload
  try {
    return utf8.decode(payload)
  } catch {
    return undefined
  }
}
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
