import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Task } from '../domain/types.ts'
import type { LoadedDownstream } from '../handler/loaded.ts'
import { signingSecret, tokenHeader, type Tokens } from '../domain/tokens.ts'
import { deliveryId } from '../domain/ids.ts'
import { signer, type Sign } from '../transport/sign.ts'

/** The headers that every transport carries, signed over exactly the payload that is sent. */
export interface DeliveryHeaders {
  /** A delivery is not sent later than this after the start of its round. */
  forgetMs: number
  headers(delivery: LoadedDelivery, payload: string | Uint8Array): Record<string, string>
  /** The headers of a probe: a separate id, so that it is not taken for the delivery, and no callback token. */
  probe(delivery: LoadedDelivery, payload: string | Uint8Array): Record<string, string>
}

export interface HeaderOptions {
  handlers: readonly {
    messageCode: string
    downstreams: readonly Pick<LoadedDownstream, 'name' | 'secrets' | 'format' | 'transport'>[]
  }[]
  secret: string
  secretPrevious?: string | undefined
  tokens: Tokens
  publicUrl: string
  forgetMs: number
  /** With tracing: the `traceparent` of the attempt. */
  traceparentOf?: ((delivery: LoadedDelivery) => string) | undefined
  /** The database's time. A host's clock may be wrong, and receivers refuse what is signed five minutes off. */
  now?: () => Date
}

/** Percent-encoded UTF-8, as in a URL: other text does not fit into the headers of every transport. Letters, digits and . _ - stay. */
const headerText = encodeURIComponent

/** It names the delivery, so that a receiver can look it up. */
const probeId = ({ task, downstream, attempt }: LoadedDelivery): string =>
  `probe_${deliveryId(task.id, downstream)}_${attempt}`

/** The secrets of a name, derived from SECRET and, during a rotation, from SECRET_PREVIOUS. */
export const derivedSecrets = (
  { secret, secretPrevious }: Pick<HeaderOptions, 'secret' | 'secretPrevious'>,
  name: string
): string[] =>
  (secretPrevious === undefined ? [secret] : [secret, secretPrevious]).map(one => signingSecret(one, name))

/** The headers of every request about a task. `webhook-id` is the first: in a Redis stream it ends the handler's own fields. */
export function signedHeaders(
  sign: Sign | undefined,
  id: string,
  task: Task,
  payload: string | Uint8Array,
  now: Date
): Record<string, string> {
  const timestamp = Math.floor(now.getTime() / 1000)
  const headers: Record<string, string> = {
    'webhook-id': id,
    'webhook-timestamp': String(timestamp),
    'webhook-signature': sign?.(id, timestamp, payload) ?? '',
    'ackbox-task-no': task.taskNo,
    'ackbox-message-code': task.messageCode,
    'ackbox-scene-type': headerText(task.sceneType)
  }
  if (task.traceparent !== null) headers['traceparent'] = task.traceparent
  return headers
}

/** Signing secrets come from the handler. Otherwise they are derived from SECRET (and SECRET_PREVIOUS during a rotation). */
export function deliveryHeaders({
  handlers,
  secret,
  secretPrevious,
  tokens,
  publicUrl,
  forgetMs,
  traceparentOf,
  now = () => new Date()
}: HeaderOptions): DeliveryHeaders {
  const signers = new Map<string, Sign>(
    handlers
      .flatMap(handler => handler.downstreams)
      .map(({ name, secrets }) => [name, signer(secrets ?? derivedSecrets({ secret, secretPrevious }, name))])
  )
  const cloudEvents = new Map(
    handlers.flatMap(({ messageCode, downstreams }) =>
      downstreams
        .filter(({ format }) => format === 'cloudevents')
        .map(
          ({ name, transport }) =>
            [`${name} ${messageCode}`, cloudEventHeaders(transport, publicUrl)] as const
        )
    )
  )
  const callbackUrl = `${publicUrl}/callback`
  const signed = (
    id: string,
    { task, downstream, attempt }: LoadedDelivery,
    payload: string | Uint8Array
  ): Record<string, string> => {
    const headers = signedHeaders(signers.get(downstream), id, task, payload, now())
    headers['ackbox-attempt'] = String(attempt)
    return headers
  }
  return {
    forgetMs,
    probe: (delivery, payload) => ({
      ...signed(probeId(delivery), delivery, payload),
      'ackbox-probe': '1'
    }),
    headers(delivery, payload) {
      const { task, downstream, attempt, needsReceipt, position, round, roundAt } = delivery
      const id = deliveryId(task.id, downstream)
      const headers = signed(id, delivery, payload)
      headers['ackbox-round'] = String(round)
      headers['ackbox-forget-after'] = new Date(roundAt.getTime() + forgetMs).toISOString()
      if (position !== null) {
        headers['ackbox-sequence'] = String(Math.abs(position))
        if (position < 0) headers['ackbox-out-of-order'] = '1'
      }
      const ofAttempt = traceparentOf?.(delivery)
      if (ofAttempt) headers['traceparent'] = ofAttempt
      const cloudEvent = cloudEvents.size > 0 && cloudEvents.get(`${downstream} ${task.messageCode}`)
      if (cloudEvent) cloudEvent(headers, id, task)
      else if (ofAttempt && task.traceparent !== null) headers['ce-traceparent'] = task.traceparent
      if (needsReceipt) {
        headers['ackbox-callback-url'] = callbackUrl
        const issued = now()
        // Never older than its task, even if the clocks differ: it would look like the token of an earlier task.
        const at = issued < task.createdAt ? task.createdAt : issued
        headers[tokenHeader] = tokens.issue({ taskNo: task.taskNo, downstream, attempt, at })
      }
      return headers
    }
  }
}

/**
 * The attributes of a CloudEvent in binary mode, beside the other headers.
 * https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md and kafka-protocol-binding.md
 */
function cloudEventHeaders(
  transport: string,
  source: string
): (headers: Record<string, string>, id: string, task: Task) => void {
  const isHttp = transport === 'http'
  const prefix = isHttp ? 'ce-' : 'ce_'
  const value = isHttp ? percentEncoded : (text: string): string => text
  return (headers, id, { taskNo, messageCode, traceparent, createdAt }) => {
    headers[`${prefix}specversion`] = '1.0'
    headers[`${prefix}id`] = value(id)
    headers[`${prefix}source`] = value(source)
    headers[`${prefix}type`] = value(messageCode)
    headers[`${prefix}subject`] = value(taskNo)
    headers[`${prefix}time`] = createdAt.toISOString()
    if (traceparent !== null) headers[`${prefix}traceparent`] = traceparent
  }
}

/** Section 3.1.3.2 of the HTTP binding: all but printable ASCII, and the space, `"` and `%`. */
const percentEncoded = (text: string): string =>
  text.replaceAll(/[^!#$&-~]/gu, char =>
    /^[\uD800-\uDFFF]$/.test(char) ? '%EF%BF%BD' : encodeURIComponent(char)
  )
