import type { Outcome } from '../task/task.ts'
import type { Broker } from './broker.ts'
import { chosen } from './choose.ts'
import { deadlines } from './deadlines.ts'
import { callBody, readResponse, type Returned } from './dubbo2/body.ts'
import { openConnection, type Connection } from './dubbo2/connection.ts'
import type { Dubbo2Request } from './dubbo2/request.ts'
import { failureOf } from './failure.ts'
import { flights, reservedName } from './flight.ts'
import { link, type Link } from './link.ts'
import type { Accepted, Answer, Transport, TransportDeps, Verdict } from './transport.ts'

const bytesKept = 16_384

/**
 * The classic Dubbo protocol over TCP with hessian2, by the generic `$invoke`: needs nothing of the interface but its name.
 * One connection a provider carries all calls; an answer belongs to the call of its id and to no other.
 */
export function dubbo2Transport(deps: TransportDeps): Transport<Dubbo2Request> {
  const flying = flights(deadlines())
  const links = new Map<string, Link<Connection>>()

  function linkTo(broker: Broker): Link<Connection> {
    let known = links.get(broker.name)
    if (!known) {
      known = link<Connection>(broker, deps, async (place, signal) => {
        const client = await openConnection(place.address, place.port, signal)
        return { client, gone: client.gone, end: () => client.end() }
      })
      links.set(broker.name, known)
    }
    return known
  }

  return {
    name: 'dubbo2',

    async send(request, parcel, accepted) {
      const problem = problemOf(request)
      if (problem) return failed(`bad_request: ${problem}`)
      let cancel = (): void => {}
      try {
        const broker = chosen(deps.brokers, 'dubbo2', request.broker)
        // The signature is over the arguments as JSON, the only text of them that both sides can make.
        const payload = textOf(request.args)
        const body = callBody(request, { ...request.attachments, ...parcel.headers(payload) })
        return await flying.fly(
          parcel,
          async flight => {
            const connection = await linkTo(broker).client()
            if (flight.over) return failed('timeout')
            const { address } = connection
            const answer = await new Promise<{ status: number; body: Buffer }>((resolve, reject) => {
              const id = connection.call(body, got => (got instanceof Error ? reject(got) : resolve(got)))
              cancel = () => connection.forget(id)
            })
            return { ...judge(readResponse(answer.status, answer.body), accepted), address }
          },
          () => cancel()
        )
      } catch (error) {
        return failureOf(error)
      }
    },

    async close() {
      flying.close()
      for (const each of links.values()) each.close()
    }
  }
}

const failed = (reason: string): Outcome => ({ kind: 'failed', reason })
const name = /^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*$/

function problemOf(request: Dubbo2Request): string | undefined {
  if (typeof request !== 'object' || request === null) return 'the handler gave no request'
  const { service, method, types, args, version, group, attachments = {} } = request
  if (typeof service !== 'string' || !name.test(service))
    return 'the service must be the name of an interface'
  if (typeof method !== 'string' || !/^[A-Za-z_$][\w$]*$/.test(method)) return 'the method must be a name'
  if (!Array.isArray(types) || !types.every(each => typeof each === 'string'))
    return 'types must be the names of Java types'
  if (!Array.isArray(args)) return 'args must be an array, with one for each of the types'
  if (args.length !== types.length) return `there are ${types.length} types and ${args.length} args`
  if (version !== undefined && typeof version !== 'string') return 'the version must be a text'
  if (group !== undefined && typeof group !== 'string') return 'the group must be a text'
  if (typeof attachments !== 'object' || attachments === null) return 'the attachments must be an object'
  if (!Object.values(attachments).every(each => typeof each === 'string')) return 'attachments must be texts'
  return reservedName(Object.keys(attachments))
}

const textOf = (value: unknown): string =>
  JSON.stringify(value, (_, each: unknown) => (typeof each === 'bigint' ? each.toString() : each)) ?? 'null'

function judge(returned: Returned, accepted: Accepted | undefined): Outcome {
  if (returned.kind === 'error') return errorOf(returned.status, returned.message)
  if (returned.kind === 'exception')
    return failed(`exception: ${`${returned.name}: ${returned.message}`.slice(0, 200)}`)
  const text = textOf(returned.value)
  const evidence = { status: 20, answer: Buffer.from(text).subarray(0, bytesKept) }
  if (!accepted) return { kind: 'delivered', ...evidence }
  let verdict: Verdict
  try {
    const answer: Answer = { status: 200, headers: {}, json: JSON.parse(text), text }
    verdict = accepted(answer)
  } catch (error) {
    return { ...failed(`accepted_threw: ${String(error).slice(0, 200)}`), ...evidence }
  }
  if (verdict === 'refused') return { kind: 'refused', reason: 'not_accepted', ...evidence }
  return verdict === true ? { kind: 'delivered', ...evidence } : { ...failed('not_accepted'), ...evidence }
}

/** A provider says little by its status; its text tells more, and holds the stack and the arguments, so it is not kept. */
function errorOf(status: number, text: string): Outcome {
  switch (status) {
    case 25:
      return /too large/i.test(text)
        ? { kind: 'refused', reason: 'too_large: larger than the provider takes', status }
        : { ...failed('provider: cannot read the call'), status }
    case 31:
      return { ...failed('timeout: the provider gave it up'), status }
    case 40:
    case 60:
      return { ...failed('target_missing: there is no such service, version or group'), status }
    case 100:
      return { ...failed('provider_busy'), status }
    case 70:
      if (/No such method/i.test(text))
        return { ...failed('target_missing: there is no such method'), status }
      if (
        /NumberFormatException|ClassCastException|Failed to parse|args\.length|IllegalArgument|convert/i.test(
          text
        )
      )
        return { kind: 'refused', reason: 'bad_arguments: they do not fit the method', status }
      return { ...failed('provider: service error'), status }
    default:
      return { ...failed(`provider: status ${status}`), status }
  }
}
