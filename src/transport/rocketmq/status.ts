import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import type { Outcome } from '../../domain/types.ts'
import { failed, failureOf } from '../failure.ts'
import { isError } from '../../runtime/text-of.ts'

type NotDelivered = Exclude<Outcome, { kind: 'delivered' }>

const { Code } = definition

/** The outcomes of the proxy's own codes, for sends. */
const verdicts: Readonly<Record<number, NotDelivered>> = {
  [Code.ILLEGAL_TOPIC]: failed('bad_request: invalid topic name'),
  [Code.ILLEGAL_MESSAGE_TAG]: failed('bad_request: invalid character in the tag'),
  [Code.ILLEGAL_MESSAGE_KEY]: failed('bad_request: invalid character in a key'),
  [Code.ILLEGAL_MESSAGE_GROUP]: failed('bad_request: invalid character in the group'),
  [Code.ILLEGAL_MESSAGE_PROPERTY_KEY]: failed(
    'bad_request: a property has a reserved name or a control character'
  ),
  [Code.ILLEGAL_DELIVERY_TIME]: failed('bad_request: the delay is longer than the broker allows'),
  [Code.MESSAGE_BODY_EMPTY]: failed('bad_request: the body is empty'),
  // Also happens shortly after a broker's start, when the proxy does not know the topic's type yet. So it is never `refused`.
  [Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE]: failed(
    'target_type: the topic does not take such messages now'
  ),
  [Code.UNAUTHORIZED]: failed('credentials: not accepted'),
  [Code.FORBIDDEN]: failed('credentials: may not send to this topic'),
  [Code.NOT_FOUND]: failed('target_missing: the topic does not exist'),
  [Code.TOPIC_NOT_FOUND]: failed('target_missing: the topic does not exist'),
  [Code.PAYLOAD_TOO_LARGE]: refused('too_large: more than the broker takes'),
  [Code.MESSAGE_BODY_TOO_LARGE]: refused('too_large: the body is more than the broker takes'),
  [Code.REQUEST_HEADER_FIELDS_TOO_LARGE]: refused('too_large: the properties are more than the broker takes'),
  [Code.MESSAGE_PROPERTIES_TOO_LARGE]: refused('too_large: the properties are more than the broker takes'),
  [Code.TOO_MANY_REQUESTS]: failed('busy: too many requests')
}

/** Undefined: the code is OK. */
export function verdictOf(code: number): NotDelivered | undefined {
  if (code === Code.OK) return undefined
  return verdicts[code] ?? failed(`broker: ${code}`)
}

/** The error codes of gRPC that we distinguish. */
const codes = {
  cancelled: 1,
  deadline: 4,
  denied: 7,
  exhausted: 8,
  unknown: 12,
  unavailable: 14,
  unauthenticated: 16
}

interface CallError {
  code: number
  details: string
}

const isCallError = (error: unknown): error is CallError =>
  isError(error) && 'details' in error && 'code' in error && typeof error.code === 'number'

export const isUnavailable = (error: unknown): boolean =>
  isCallError(error) && error.code === codes.unavailable

/** The proxy is away, or did not answer in time. */
export const isAway = (error: unknown): boolean =>
  isUnavailable(error) || (isCallError(error) && error.code === codes.deadline)

/** An answer had more bytes than allowed. A server that is overloaded has the same code. */
export const isTooLarge = (error: unknown): boolean => isCallError(error) && error.code === codes.exhausted

/** The error of a call whose connection was closed before it started. */
export const notConnected = (): Error =>
  Object.assign(new Error('left'), { code: codes.unavailable, details: 'No connection: left' })

/** No connection was opened: nothing was sent, so another address may be tried at once. */
export const wasNotSent = (error: unknown): boolean =>
  isCallError(error) && error.code === codes.unavailable && error.details.startsWith('No connection')

/** The outcome of a call without an answer. gRPC's text is only searched for the cause, and never shown. */
export function failureOfCall(error: unknown): NotDelivered {
  if (!isCallError(error)) return failureOf(error)
  if (error.code === codes.deadline) return failed('timeout')
  if (error.code === codes.cancelled) return failed('connection_closed')
  if (error.code === codes.denied || error.code === codes.unauthenticated)
    return failed('credentials: not accepted')
  if (error.code === codes.unknown) return failed('protocol: not the proxy of RocketMQ 5')
  if (error.code !== codes.unavailable) return failed(`protocol: gRPC ${error.code}`)
  if (/certificate|self.signed/i.test(error.details))
    return { kind: 'failed', reason: 'tls: the certificate is not trusted', alarm: 'TLS' }
  const [code] = /\bE[A-Z]{4,}\b/.exec(error.details) ?? []
  return failureOf(Object.assign(new Error(error.details), { code: code ?? 'ECONNRESET' }))
}

function refused(reason: string): NotDelivered {
  return { kind: 'refused', reason }
}
