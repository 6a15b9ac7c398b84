import { randomUUID } from 'node:crypto'
import type { Outcome } from '../task/task.ts'
import { at, type Broker } from './broker.ts'
import { chosen } from './choose.ts'
import { failureOf } from './failure.ts'
import { httpTransport } from './http.ts'
import type { Transport, TransportDeps } from './transport.ts'

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
  /** More attachments. */
  attachments?: Record<string, string>
}

/**
 * Triple as JSON over HTTP/1.1, which Dubbo 3.3 and newer speak on their ordinary port:
 * https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/triple/. Deadlines, the guard and what is read of an
 * answer are those of http; here is what a Dubbo provider means by its statuses.
 */
export function dubboTransport(deps: TransportDeps): Transport<DubboRequest> {
  const http = httpTransport({ guard: deps.guard })
  let turn = 0

  return {
    name: 'dubbo',

    async send(request, parcel, accepted) {
      let broker: Broker
      try {
        broker = chosen(deps.brokers, 'dubbo', request?.broker)
      } catch (error) {
        return failureOf(error)
      }
      const args = argsOf(request)
      if (args.problem !== undefined) return failed(`bad_request: ${args.problem}`)
      const host = broker.hosts[turn++ % broker.hosts.length] ?? { host: '', port: 0 }
      const outcome = await http.send(
        {
          url: `${broker.tls ? 'https' : 'http'}://${at(host)}/${request.service}/${request.method}`,
          headers: {
            ...request.attachments,
            'content-type': 'application/json',
            // Plain milliseconds; the provider answers 408 when the method took longer, and does not stop it.
            'tri-service-timeout': String(Math.max(1, Math.floor(parcel.timeoutMs)))
          },
          body: args.text
        },
        parcel,
        accepted
      )
      return meant(outcome)
    },

    close: () => http.close()
  }
}

const failed = (reason: string): Outcome => ({ kind: 'failed', reason })

const name = /^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*$/

type Args = { text: string; problem?: undefined } | { problem: string }

function argsOf({ service, method, args, attachments = {} }: DubboRequest): Args {
  if (typeof service !== 'string' || !name.test(service))
    return { problem: 'the service must be the name of an interface' }
  if (typeof method !== 'string' || !/^[A-Za-z_$][\w$]*$/.test(method))
    return { problem: 'the method must be a name' }
  if (typeof attachments !== 'object' || attachments === null)
    return { problem: 'the attachments must be an object' }
  for (const each of Object.keys(attachments)) {
    // A provider would take them for its own: https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/triple/
    if (/^(tri-|rest-|grpc-|content-type$)/i.test(each))
      return { problem: `the attachment ${each} is not the handler's to set` }
  }
  if (typeof args === 'string')
    return isArray(args) ? { text: args } : { problem: 'args must be the text of a JSON array' }
  if (!Array.isArray(args)) return { problem: 'args must be an array, with one for each parameter' }
  try {
    return { text: textOf(args) }
  } catch (error) {
    return {
      problem: `args cannot be written as JSON: ${error instanceof Error ? error.message.slice(0, 100) : ''}`
    }
  }
}

function isArray(text: string): boolean {
  try {
    return Array.isArray(JSON.parse(text))
  } catch {
    return false
  }
}

/** JSON.stringify throws on a bigint: it goes through as a text that nobody can have sent, and becomes a number again. */
const mark = randomUUID()
const marked = new RegExp(`"${mark}(-?\\d+)"`, 'g')
const textOf = (args: readonly unknown[]): string =>
  JSON.stringify(args, (_, value: unknown) =>
    typeof value === 'bigint' ? `${mark}${value}` : value
  ).replace(marked, '$1')

/** What a provider says with its status: it has no other word for what happened to a call. */
function meant(outcome: Outcome): Outcome {
  const { status } = outcome
  if (outcome.kind !== 'failed' || outcome.reason !== `http_${status}`) return outcome
  if (status === 500) return { ...outcome, reason: `exception: ${messageIn(outcome.answer)}` }
  // Its message repeats the argument, which is nobody's business here.
  if (status === 400) return { ...outcome, ...words[400], answer: new Uint8Array() }
  return { ...outcome, ...words[status ?? 0] }
}

const words: Readonly<Record<number, { kind: 'failed' | 'refused'; reason: string }>> = {
  400: { kind: 'refused', reason: 'bad_arguments: they do not fit the method' },
  404: { kind: 'failed', reason: 'target_missing: there is no such service or method' },
  408: { kind: 'failed', reason: 'timeout: the provider ran it to its end' },
  413: { kind: 'refused', reason: 'too_large: larger than the provider takes' }
}

/** `{"message":"…","status":"500"}`, cut short. */
function messageIn(answer: Uint8Array | undefined): string {
  try {
    const said = JSON.parse(Buffer.from(answer ?? []).toString()) as { message?: unknown }
    if (typeof said.message === 'string') return said.message.slice(0, 200)
  } catch {} // then it has nothing to say
  return 'without a message'
}
