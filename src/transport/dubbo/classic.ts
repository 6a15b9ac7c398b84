import { redact } from '../../domain/redact.ts'
import type { Evidence, Outcome } from '../../domain/types.ts'
import { bytesKept, bytesRead, judgedBy, ReadAnswer } from '../http/answer.ts'
import {
  callBody,
  javaArgs,
  readResponse,
  type Dubbo2Request,
  type JavaArgs,
  type Returned
} from './hessian.ts'
import { openConnection, type Connection } from './classic-connection.ts'
import { jsonOf } from './hessian-json.ts'
import { errorOf } from './classic-frame.ts'
import { failed, Failure, failureOf } from '../failure.ts'
import { brokerTransport, reservedName, type Flight } from '../sends.ts'
import { link, type Link } from '../connection.ts'
import type { Accepted, SendContext, Transport, TransportDeps } from '../types.ts'

/**
 * The classic Dubbo protocol over TCP with hessian2, by the generic `$invoke`, which needs only the name of the interface.
 * One connection to each provider carries all calls; the id of an answer names its call.
 */
export function dubbo2Transport(deps: TransportDeps): Transport<Dubbo2Request> {
  return brokerTransport<Dubbo2Request, Link<Connection>, Buffer>('dubbo2', deps, {
    open: broker =>
      link<Connection>(broker, deps, async (place, signal) => {
        const client = await openConnection(place.address, place.port, signal)
        return { client, gone: client.gone, end: () => client.end() }
      }),
    read: bodyOf,
    send: (to, body, flight, accepted) => call(to, body, flight, accepted).catch(failureOf)
  })
}

/** The body of the call, or the error in the request. */
function bodyOf(request: Dubbo2Request, context: SendContext): Buffer | string {
  const problem = problemOf(request)
  if (problem) return problem
  const written = argsOf(request)
  if (!written) return 'args has a bigint beyond 64 bits or a circular reference'
  return callBody(request, written, { ...request.attachments, ...context.headers(written.payload) })
}

async function call(
  to: Link<Connection>,
  body: Buffer,
  flight: Flight,
  accepted?: Accepted
): Promise<Outcome> {
  const connection = await to.client()
  if (flight.over) return failed('timeout')
  const { address } = connection
  const answer = await new Promise<{ status: number; body: Buffer } | Failure>(resolve => {
    const id = connection.call(body, resolve)
    const forget = (): void => connection.forget(id)
    flight.cut = forget
  })
  if (answer instanceof Failure) return { ...answer.outcome, address }
  return { ...judge(answered(answer), accepted), address }
}

const name = /^[A-Za-z_$][\w$]*(?:\.[A-Za-z_$][\w$]*)*$/

function problemOf(request: Dubbo2Request): string | undefined {
  const { service, method, types, args, version, group, attachments = {} } = request
  if (typeof service !== 'string' || !name.test(service))
    return 'the service must be the name of an interface'
  if (typeof method !== 'string' || !/^[A-Za-z_$][\w$]*$/.test(method)) return 'the method must be a name'
  if (!Array.isArray(types) || !types.every(each => typeof each === 'string'))
    return 'types must be the names of Java types'
  if (!Array.isArray(args)) return 'args must be an array, with one for each of the types'
  if (args.length !== types.length) return `there are ${types.length} types and ${args.length} args`
  if (version !== undefined && typeof version !== 'string') return 'the version must be text'
  if (group !== undefined && typeof group !== 'string') return 'the group must be text'
  if (typeof attachments !== 'object' || attachments === null) return 'the attachments must be an object'
  if (!Object.values(attachments).every(each => typeof each === 'string')) return 'attachments must be text'
  return reservedName(Object.keys(attachments))
}

/** The signature covers the arguments as JSON, the only text form that both sides can produce. */
function argsOf({ args }: Dubbo2Request): (JavaArgs & { payload: string }) | undefined {
  try {
    const bigintAsText = (_: string, each: unknown) => (typeof each === 'bigint' ? each.toString() : each)
    return { ...javaArgs(args), payload: JSON.stringify(args, bigintAsText) }
  } catch {
    return undefined
  }
}

function answered({ status, body }: { status: number; body: Buffer }): Returned | undefined {
  try {
    return readResponse(status, body)
  } catch {
    return undefined
  }
}

function judge(returned: Returned | undefined, accepted: Accepted | undefined): Outcome {
  if (!returned) return failed('protocol: the answer cannot be read')
  if (returned.kind === 'error') return errorOf(returned.status, returned.message)
  if (returned.kind === 'exception') {
    const message = redact(`${returned.name}: ${returned.message.slice(0, 2_000)}`)
    return { ...failed(`exception: ${message.slice(0, 200)}`), status: 20 }
  }
  const { text, whole } = jsonOf(returned.value, bytesRead)
  const bytes = Buffer.from(text)
  const broken = returned.whole && whole && bytes.length <= bytesRead ? undefined : 'answer_too_long'
  const evidence: Evidence = { status: 20, answer: bytes.subarray(0, bytesKept) }
  if (broken) evidence.warning = broken
  if (!accepted) return { kind: 'delivered', ...evidence }
  const answer = new ReadAnswer(200, [], bytes.subarray(0, bytesRead))
  const verdict = judgedBy(accepted, answer)
  if (typeof verdict === 'object') return { ...failed(verdict.wrong), ...evidence }
  if (verdict === 'refused') return { kind: 'refused', reason: 'not_accepted', ...evidence }
  if (broken && answer.bodyUsed) return { ...failed(broken), ...evidence }
  return verdict === true ? { kind: 'delivered', ...evidence } : { ...failed('not_accepted'), ...evidence }
}
