import { isUint8Array } from 'node:util/types'
import { jsonBody } from './json-body.ts'
import { nearest } from '../runtime/nearest.ts'
import { isThenable } from '../runtime/with-timeout.ts'
import type { TransportName } from './define.ts'

const requestFields: Record<TransportName, string[]> = {
  http: ['url', 'method', 'headers', 'body'],
  dubbo: ['broker', 'service', 'method', 'args', 'parameters', 'attachments'],
  dubbo2: ['broker', 'service', 'method', 'types', 'args', 'version', 'group', 'attachments'],
  custom: ['send'],
  rabbitmq: ['broker', 'exchange', 'routingKey', 'headers', 'body'],
  kafka: ['broker', 'topic', 'key', 'headers', 'value'],
  rocketmq: ['broker', 'topic', 'tag', 'keys', 'properties', 'group', 'delayMs', 'body'],
  nats: ['broker', 'subject', 'headers', 'payload'],
  'redis-stream': ['broker', 'stream', 'maxlen', 'create', 'fields']
}

/** The member that holds the body, if it may be given as a value that Ackbox writes as JSON. */
const bodyMember: { [transport: string]: string } = {
  http: 'body',
  rabbitmq: 'body',
  kafka: 'value',
  rocketmq: 'body',
  nats: 'payload'
}

/** The `deliveryId` of a dry run, which is as strict as `strictBody`. */
export const dryRunId = 'dry-run'

/** See BodyRules. `warn` is called once for each pointer. */
export interface RequestRules {
  strictBody: boolean
  warn(fields: { downstream: string; pointer: string }): void
}

/** A member of a body that a handler gave as a value, and that JSON leaves out. */
export interface UndefinedMember {
  messageCode: string
  downstream: string
  pointer: string
}

/** The same for all handlers. */
export interface HandlerRules {
  strictBody: boolean
  warn(member: UndefinedMember): void
}

export const requestRules = (
  { strictBody, warn }: HandlerRules,
  messageCode: string,
  isStrict: boolean
): RequestRules => ({
  strictBody: strictBody || isStrict,
  warn: fields => warn({ messageCode, ...fields })
})

/** Pointers of undefined members of one downstream that are remembered. Names of members may come from a task. */
const mostWarned = 100

/**
 * TypeScript lets a function return unknown members. So a `boddy` would be ignored, and the downstream would get something
 * else. Here it fails the attempt, and the error suggests the right name.
 */
export function checkedRequest(
  transport: string,
  downstream: string,
  request: (about: unknown) => unknown,
  { strictBody, warn }: RequestRules
): (about: unknown) => unknown {
  const known = requestFields[transport as TransportName] ?? []
  const named = bodyMember[transport]
  const warned = new Set<string>()
  const warnOnce = (pointer: string): void => {
    const place = pointer.replaceAll(/\/\d+(?=\/|$)/g, '/0')
    if (warned.has(place) || warned.size >= mostWarned) return
    warned.add(place)
    warn({ downstream, pointer })
  }
  return about => {
    const made = request(about)
    const isStrict = strictBody || (about as { deliveryId?: unknown }).deliveryId === dryRunId
    return isThenable(made) ? Promise.resolve(made).then(one => check(one, isStrict)) : check(made, isStrict)
  }

  function check(made: unknown, isStrict: boolean): unknown {
    if (typeof made !== 'object' || made === null) {
      throw new Error(
        `the request of ${downstream} is ${made === null ? 'null' : typeof made}, not an object`
      )
    }
    for (const name of Object.keys(made)) {
      if (known.includes(name)) continue
      const meant = nearest(name, known)
      throw new Error(
        `the request of ${downstream} has the unknown member ${name}: ${meant ? `did you mean ${meant}?` : `the members are ${known.join(', ')}`}`
      )
    }
    const copy = plain(made, known, named)
    const body = named === undefined ? undefined : copy[named]
    if (named !== undefined && typeof body === 'object' && body !== null && !isUint8Array(body))
      copy[named] = jsonBody(`the ${named} of ${downstream}`, body, { isStrict, warn: warnOnce })
    return copy
  }
}

/**
 * The members, each read once: transports read them later and in other places, where a getter or a Proxy that throws would harm the
 * deliveries of others.
 */
function plain(
  made: object,
  known: readonly string[],
  body: string | undefined
): { [name: string]: unknown } {
  const copy: { [name: string]: unknown } = {}
  for (const name of known) {
    const value = (made as { [name: string]: unknown })[name]
    if (value === undefined) continue
    // oxlint-disable-next-line typescript/no-base-to-string -- a URL, or the result of `url`; what throws here fails the attempt
    copy[name] = name === 'url' ? String(value) : name === body ? value : plainMember(value)
  }
  return copy
}

function plainMember(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || isUint8Array(value)) return value
  return Array.isArray(value) ? Array.from(value as unknown[]) : { ...value }
}
