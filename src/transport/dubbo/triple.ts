import { randomUUID } from 'node:crypto'
import { redact } from '../../domain/redact.ts'
import type { Outcome } from '../../domain/types.ts'
import { at, type Broker, chosen } from '../broker.ts'
import { exchanges, headersOf } from '../http/client.ts'
import { failed, failureOf } from '../failure.ts'
import type { Accepted, Transport, TransportDeps } from '../types.ts'

/** What a handler's `request` returns for dubbo. */
export interface DubboRequest {
  /** Which provider: the name of a broker in the settings, `dubbo` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /**
   * One for each parameter of the method, in order, whatever their number: Triple answers 200 to a call with too few or too
   * many, and runs the method with nulls. A bigint is sent as the number it is. A text is the JSON of all of them.
   */
  args: readonly unknown[] | string
  /** How many parameters the method has: a call with another number of `args` is not sent. */
  parameters?: number
  /** More attachments. */
  attachments?: Record<string, string>
}

/**
 * Triple as JSON over HTTP/1.1, which Dubbo 3.3 and newer speak on their ordinary port:
 * https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/triple/. Deadlines, the guard and what is read of an
 * answer are those of http; here is what a Dubbo provider means by its statuses.
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
      const first = turn++
      let outcome: Outcome = failed('connect_timeout')
      for (let n = 0; n < broker.hosts.length; n++) {
        const host = at(broker.hosts[(first + n) % broker.hosts.length] ?? { host: '', port: 0 })
        const url = `http${broker.tls ? 's' : ''}://${host}/${request.service}/${request.method}`
        if (!URL.canParse(url))
          return failed(`bad_request: the broker ${broker.name} has an invalid host name`)
        const timeoutMs = due - performance.now()
        // A context of its own: ours is read once, and its headers are signed already.
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
        if (outcome.kind !== 'failed' || !unsent.test(outcome.reason)) break
      }
      return meant(outcome)
    },

    close: () => open.close()
  }
}

/** After these nothing was written, so that another host may be asked. */
const unsent = /^(?:connection_refused$|dns:)/
const trouble = /^(?:connection_|connect_timeout$|dns:|tls:|protocol|unreachable$|blocked_target:)/

/** Plain milliseconds; the provider answers 408 when the method took longer, and does not stop it. */
const deadline = (ms: number): string[] => ['tri-service-timeout', String(Math.max(1, Math.floor(ms)))]

/** `accepted` sees only what a method returned: it would look for members that other answers lack. */
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
  // A provider would take them for its own.
  const taken = Object.keys(attachments).find(each => /^(?:tri-|rest-|grpc-|content-type$)/i.test(each))
  return taken && `a handler must not set the attachment ${taken}`
}

/** The meaning of a status of the provider. */
function meant(outcome: Outcome): Outcome {
  const { status } = outcome
  if (outcome.kind !== 'failed' || outcome.reason !== `http_${status}`) return outcome
  if (status === 500) return { ...outcome, reason: `exception: ${messageIn(outcome.answer)}` }
  // Without its message, which repeats the arguments.
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

/** `{"message":"…","status":"500"}`, cut short. It may repeat our headers, and goes into the log. */
function messageIn(answer: Uint8Array | undefined): string {
  try {
    const said = JSON.parse(Buffer.from(answer ?? []).toString()) as { message?: unknown }
    if (typeof said.message === 'string') return redact(said.message).slice(0, 200)
  } catch {} // an answer without a message
  return 'without a message'
}

type Args = { text: string; problem?: undefined } | { problem: string }

/** The arguments of a call as the text of one JSON array, or what is wrong with them. */
function argsOf(args: unknown, parameters: number | undefined): Args {
  const list = typeof args === 'string' ? arrayIn(args) : args
  if (!Array.isArray(list))
    return { problem: 'args must be an array with one for each parameter, or the text of such an array' }
  if (parameters !== undefined && parameters !== list.length)
    return { problem: `args holds ${list.length}, and the method has ${parameters} parameters` }
  if (typeof args === 'string') return { text: args }
  // The method would get null instead, without any sign of it.
  const unsaid = Array.from(list).indexOf(undefined)
  if (unsaid >= 0) return { problem: `args[${unsaid}] is undefined: write null to send null` }
  try {
    return { text: textOf(list) }
  } catch (error) {
    return {
      problem: `args cannot be written as JSON: ${error instanceof Error ? error.message.slice(0, 100) : ''}`
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

/** JSON.stringify throws on a bigint: each is written as a random text, which becomes a number again. */
const mark = randomUUID()
const marked = new RegExp(`"${mark}(-?\\d+)"`, 'g')

const textOf = (args: unknown[]): string =>
  JSON.stringify(args, (_, value: unknown) => {
    if (typeof value === 'bigint') return `${mark}${value}`
    // JSON.stringify would write null.
    if (typeof value === 'number' && !Number.isFinite(value)) throw new TypeError(`JSON has no ${value}`)
    return value
  }).replace(marked, '$1')
