import { randomUUID } from 'node:crypto'
import { redact } from '../../domain/redact.ts'
import type { Outcome } from '../../domain/types.ts'
import { at, type Broker, chosen, rotated } from '../broker.ts'
import { exchanges, headersOf } from '../http/client.ts'
import { failed, failureOf } from '../failure.ts'
import { reasonOf } from '../../runtime/errors.ts'
import type { Accepted, Transport, TransportDeps } from '../types.ts'

/** The result of a handler's `request` for dubbo. */
export interface DubboRequest {
  /** The provider: the name of a broker in the settings, `dubbo` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /**
   * Exactly one value for each parameter of the method, in order. With too few or too many, Triple still runs the method, with
   * nulls, and answers 200. A bigint is sent as a number. A text is the JSON array of all values.
   */
  args: readonly unknown[] | string
  /** The number of parameters of the method. A call with another number of `args` is not sent. */
  parameters?: number
  /** More attachments. */
  attachments?: Record<string, string>
}

/**
 * Triple as JSON over HTTP/1.1, which Dubbo 3.3 and newer speak on their ordinary port:
 * https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/triple/. Deadlines, the guard and the limits of an
 * answer are those of http. This file adds the meaning of a Dubbo provider's statuses.
 */
export function dubboTransport({ guard, brokers, log }: TransportDeps): Transport<DubboRequest> {
  const open = exchanges(guard)
  const away = new Set<string>()
  let turn = 0

  /** Logged once when it begins, and once when it is over. */
  function note(broker: Broker, host: string, outcome: Outcome): void {
    if (outcome.status !== undefined) {
      if (away.delete(host)) log.info({ broker: broker.name, host }, 'broker.available')
    } else if (outcome.kind === 'failed' && trouble.test(outcome.reason) && !away.has(host)) {
      away.add(host)
      log.warn({ broker: broker.name, host, reason: outcome.reason }, 'broker.unavailable')
    }
  }

  return {
    name: 'dubbo',

    async send(request, context, accepted) {
      if (context.signal.aborted) return failed('shutdown')
      if (context.timeoutMs <= 0) return failed('timeout')
      const wrong = problemOf(request)
      if (wrong !== undefined) return failed(`bad_request: ${wrong}`)
      let broker: Broker
      try {
        broker = chosen(brokers, 'dubbo', request.broker)
      } catch (error) {
        return failureOf(error)
      }
      const args = argsOf(request.args, request.parameters)
      if (args.problem !== undefined) return failed(`bad_request: ${args.problem}`)
      const headers = headersOf(request.attachments ?? {}, context, args.text)
      if (typeof headers === 'string') return failed(`bad_request: ${headers}`)

      const due = performance.now() + context.timeoutMs
      let outcome: Outcome = failed('connect_timeout')
      for (const [n, place] of rotated(broker.hosts, turn++).entries()) {
        const host = at(place)
        const url = `http${broker.tls ? 's' : ''}://${host}/${request.service}/${request.method}`
        if (!URL.canParse(url))
          return failed(`bad_request: the broker ${broker.name} has an invalid host name`)
        const timeoutMs = due - performance.now()
        if (n > 0 && timeoutMs <= 0) break
        // Only `timeoutMs` differs for a later host: the headers are already signed.
        outcome = await open.send(
          {
            url: new URL(url),
            method: 'POST',
            headers: [...headers, ...deadline(timeoutMs)],
            body: args.text
          },
          n === 0 ? context : { ...context, timeoutMs },
          returned(accepted)
        )
        note(broker, host, outcome)
        if (!isUnsent(outcome)) break
      }
      return meant(outcome)
    },

    close: () => open.close()
  }
}

const unsent = /^(?:connection_refused$|dns:)/
const unreached = /^(?:unreachable|connect_timeout)$/

/** Nothing was written, so another host may be tried. With an address the reasons of `unreached` may be those of an open connection. */
const isUnsent = (outcome: Outcome): boolean =>
  outcome.kind === 'failed' &&
  (unsent.test(outcome.reason) || (outcome.address === undefined && unreached.test(outcome.reason)))

const trouble = /^(?:connection_|connect_timeout$|dns:|tls:|protocol|unreachable$|blocked_target:)/

/** In milliseconds. If the method takes longer, the provider answers 408, but does not stop the method. */
const deadline = (ms: number): string[] => ['tri-service-timeout', String(Math.max(1, Math.floor(ms)))]

/** `accepted` gets only the result of a method (200): other answers lack the members that it expects. */
const returned =
  (accepted: Accepted | undefined): Accepted =>
  answer =>
    answer.status === 200 && (!accepted || accepted(answer))

const name = /^[A-Za-z_$][\w$]*$/

function problemOf(request: DubboRequest): string | undefined {
  if (typeof request !== 'object' || request === null) return 'the handler returned no request'
  const { service, method, attachments = {} } = request
  if (typeof service !== 'string' || !service.split('.').every(each => name.test(each)))
    return 'the service must be the name of an interface'
  if (typeof method !== 'string' || !name.test(method)) return 'the method must be a name'
  if (typeof attachments !== 'object' || attachments === null) return 'the attachments must be an object'
  // A provider would use these attachments as its own protocol headers.
  const taken = Object.keys(attachments).find(each => /^(?:tri-|rest-|grpc-|content-type$)/i.test(each))
  return taken && `a handler must not set the attachment ${taken}`
}

/** The outcome, with the provider's meaning of its status. */
function meant(outcome: Outcome): Outcome {
  const { status } = outcome
  if (outcome.kind !== 'failed' || outcome.reason !== `http_${status}`) return outcome
  if (status === 500) return { ...outcome, reason: `exception: ${messageIn(outcome.answer)}` }
  // Drops the message of the answer, because it repeats the arguments.
  if (status === 400) return { ...outcome, ...words[400], answer: new Uint8Array() }
  return { ...outcome, ...words[status ?? 0] }
}

const words: Readonly<Record<number, { kind: 'failed' | 'refused'; reason: string }>> = {
  400: { kind: 'refused', reason: 'bad_arguments: they do not match the method' },
  404: { kind: 'failed', reason: 'target_missing: the service or method does not exist' },
  408: { kind: 'failed', reason: 'timeout: the provider reported a timeout' },
  413: { kind: 'refused', reason: 'too_large: larger than the provider accepts' },
  415: { kind: 'failed', reason: 'protocol: the provider does not accept JSON' }
}

/** The message of `{"message":"…","status":"500"}`, shortened. Redacted, since it may repeat our headers and is logged. */
function messageIn(answer: Uint8Array | undefined): string {
  try {
    const { message } = JSON.parse(Buffer.from(answer ?? []).toString()) as { message?: unknown }
    if (typeof message === 'string') return redact(message).slice(0, 200)
  } catch {} // an answer without a message
  return 'without a message'
}

type Args = { text: string; problem?: undefined } | { problem: string }

/** The arguments of a call as the text of one JSON array, or the error in them. */
function argsOf(args: unknown, parameters: number | undefined): Args {
  const list = typeof args === 'string' ? arrayIn(args) : args
  if (!Array.isArray(list))
    return { problem: 'args must be an array with one for each parameter, or the text of such an array' }
  if (parameters !== undefined && parameters !== list.length)
    return { problem: `args holds ${list.length}, and the method has ${parameters} parameters` }
  if (typeof args === 'string') return { text: args }
  // The method would get null instead, without any error.
  const missing = Array.from(list).indexOf(undefined)
  if (missing >= 0) return { problem: `args[${missing}] is undefined: write null to send null` }
  try {
    return { text: textOf(list) }
  } catch (error) {
    return {
      problem: `args cannot be written as JSON: ${reasonOf(error)}`
    }
  }
}

function arrayIn(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** JSON.stringify throws on a bigint: each is written as a text with this random mark, and then replaced by the plain number. */
const mark = randomUUID()
const marked = new RegExp(`"${mark}(-?\\d+)"`, 'g')

const textOf = (args: unknown[]): string =>
  JSON.stringify(args, (_, value: unknown) => {
    if (typeof value === 'bigint') return `${mark}${value}`
    // JSON.stringify would write null.
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`)
    return value
  }).replace(marked, '$1')
