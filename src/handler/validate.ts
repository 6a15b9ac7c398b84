import { defaultBackoff } from '../domain/retry-policy.ts'
import type { Backoff } from '../domain/types.ts'
import {
  type Limit,
  type LoadedDownstream,
  type LoadedHandler,
  durationMs,
  durationText,
  type TransportName
} from './define.ts'
import { nearest } from '../runtime/nearest.ts'
import { isThenable } from '../runtime/with-timeout.ts'

/** One error of a handler, and how to fix it. */
export interface Wrong {
  what: string
  fix: string
}

const fields = {
  handler: ['messageCode', 'body', 'downstreams', 'onReceipt', 'checkBack'],
  downstream: [
    'transport',
    'request',
    'when',
    'beforeSend',
    'accepted',
    'needCallback',
    'receiptTimeout',
    'retry',
    'limit',
    'secrets'
  ],
  retry: ['times', 'backoff'],
  limit: ['concurrency', 'perSecond', 'timeout', 'pipelining']
}
/** Transports whose answers are passed to `accepted`. */
const answering = new Set(['http', 'dubbo', 'dubbo2'])
const minute = 60_000
const day = 86_400_000

/**
 * Turns the export of a handler file into a handler that the service can trust, or returns all its errors. TypeScript
 * finds most of them earlier, but handlers may be JavaScript.
 */
export function checkHandler(
  exported: unknown,
  file: string,
  transports: readonly string[]
): LoadedHandler | Wrong[] {
  const wrongs: Wrong[] = []
  const wrong = (what: string, fix: string): undefined => {
    wrongs.push({ what, fix })
  }

  if (!isObject(exported)) {
    return [{ what: `its default export is ${show(exported)}`, fix: 'export default defineHandler({ … })' }]
  }
  onlyKnown('', exported, fields.handler)
  const messageCode = code(exported['messageCode'])
  const body = exported['body']
  if (!isObject(body) || !('_zod' in body)) {
    wrong(`body is ${show(body)}, not a zod 4 schema`, "body: z.object({ … }), with z from 'ackbox/handler'")
  }
  const hooks = { ...hook('', exported, 'onReceipt'), ...hook('', exported, 'checkBack') }
  const downstreams = destinations(exported['downstreams'])
  if (wrongs.length > 0) return wrongs
  // All members were checked above. Only here that becomes a type.
  return { messageCode, file, body, downstreams, ...hooks } as LoadedHandler

  function code(value: unknown): unknown {
    if (typeof value === 'string' && /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(value)) return value
    return wrong(
      `messageCode is ${show(value)}`,
      "1 to 64 letters, digits, '.', '_' or '-', a letter or digit first: 'order.paid'"
    )
  }

  function destinations(value: unknown): (LoadedDownstream | undefined)[] {
    const named = isObject(value) ? Object.entries(value) : []
    if (named.length === 0)
      wrong('it has no downstreams', "downstreams: { warehouse: { transport: 'http', request: … } }")
    return named.map(([name, each]) => destination(name, each))
  }

  function destination(name: string, value: unknown): LoadedDownstream | undefined {
    const at = `downstreams.${name}`
    if (!/^[a-z][a-z0-9-]{0,31}$/.test(name)) {
      wrong(`the name of ${at} is bad`, "1 to 32 small letters, digits or '-', a letter first: 'warehouse'")
    }
    if (!isObject(value))
      return wrong(`${at} is ${show(value)}`, `${name}: { transport: 'http', request: … }`)
    onlyKnown(`${at}.`, value, fields.downstream)
    const transport = transportOf(at, value['transport'])
    const request = value['request']
    if (!isFunction(request)) {
      wrong(
        `${at}.request is ${show(request)}`,
        'request: ({ body, raw }) => ({ url: url`https://…`, body: raw })'
      )
    }
    if (value['accepted'] !== undefined && transport && !answering.has(transport)) {
      wrong(
        `${at}.accepted is never asked: ${transport} answers nothing but its confirmation`,
        'leave it out'
      )
    }
    const needCallback = value['needCallback']
    if (needCallback !== undefined && typeof needCallback !== 'boolean')
      wrong(`${at}.needCallback is ${show(needCallback)}`, 'write true or false')
    return {
      name,
      transport,
      ...(isFunction(request) && transport ? { request: checkedRequest(transport, name, request) } : {}),
      ...hook(`${at}.`, value, 'when'),
      ...hook(`${at}.`, value, 'beforeSend'),
      ...hook(`${at}.`, value, 'accepted'),
      ...(needCallback === undefined ? {} : { needCallback }),
      policy: {
        ...retry(at, value['retry']),
        receiptTimeoutMs: time(`${at}.receiptTimeout`, value['receiptTimeout'], 60_000, 100, day)
      },
      limit: limit(at, value['limit'], transport),
      ...secrets(at, value['secrets'])
    } as LoadedDownstream
  }

  function transportOf(at: string, value: unknown): string | undefined {
    if (typeof value === 'string' && transports.includes(value)) return value
    const meant = typeof value === 'string' ? nearest(value, transports) : undefined
    return wrong(
      `${at}.transport is ${show(value)}, which is not a transport`,
      meant
        ? `did you mean '${meant}'?`
        : `there ${transports.length > 1 ? 'are' : 'is'} ${listed(transports)}`
    )
  }

  function retry(at: string, value: unknown = {}): { times: number | undefined; backoff: Backoff } {
    if (!isObject(value))
      wrong(`${at}.retry is ${show(value)}`, "retry: { times: 10, backoff: ['10s', '1m'] }")
    const given = isObject(value) ? value : {}
    onlyKnown(`${at}.retry.`, given, fields.retry)
    return {
      times: given['times'] === undefined ? undefined : whole(`${at}.retry.times`, given['times'], 10, 100),
      backoff: backoff(`${at}.retry.backoff`, given['backoff'])
    }
  }

  function backoff(at: string, value: unknown): Backoff {
    if (value === undefined || value === 'exponential') return defaultBackoff
    const list: unknown[] = Array.isArray(value) ? value : [value]
    if (list.length === 0)
      wrong(`${at} is an empty list`, "write 'exponential', '10s' or ['10s', '1m', '5m']")
    const ms = list.map((each, index) =>
      time(Array.isArray(value) ? `${at}[${index}]` : at, each, 10_000, 1, day)
    )
    return { kind: 'list', ms }
  }

  function limit(at: string, value: unknown = {}, transport: string | undefined): Limit {
    if (!isObject(value))
      wrong(`${at}.limit is ${show(value)}`, "limit: { concurrency: 50, perSecond: 200, timeout: '10s' }")
    const given = isObject(value) ? value : {}
    onlyKnown(`${at}.limit.`, given, fields.limit)
    const pipelining = given['pipelining']
    if (pipelining !== undefined && transport && transport !== 'http')
      wrong(`${at}.limit.pipelining is for http, and this is ${transport}`, 'leave it out')
    return {
      concurrency: whole(`${at}.limit.concurrency`, given['concurrency'], 50, 10_000),
      ...(given['perSecond'] === undefined
        ? {}
        : { perSecond: whole(`${at}.limit.perSecond`, given['perSecond'], 1, 100_000) }),
      timeoutMs: time(`${at}.limit.timeout`, given['timeout'], 10_000, 10, 10 * minute),
      ...(pipelining === undefined || pipelining === 1
        ? {}
        : { pipelining: whole(`${at}.limit.pipelining`, pipelining, 1, 100) })
    }
  }

  // A message never contains a secret.
  function secrets(at: string, value: unknown): { secrets?: string[] } {
    if (value === undefined) return {}
    const list: unknown[] = Array.isArray(value) ? value : []
    // An empty secret comes from an `env` name that is not set: the error says so.
    const good = list.every(each => typeof each === 'string' && (each === '' || isSecret(each)))
    if (list.length === 0 || !good) {
      wrong(
        `${at}.secrets is not a list of signing secrets`,
        "secrets: [env.NEW, env.OLD], each 'whsec_' and base64 of 24 to 64 bytes"
      )
    }
    return { secrets: list as string[] }
  }

  function whole(at: string, value: unknown, otherwise: number, most: number): number {
    if (value === undefined) return otherwise
    if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= most) return value
    wrong(`${at} is ${show(value)}`, `write a whole number from 1 to ${most}`)
    return otherwise
  }

  function time(at: string, value: unknown, otherwise: number, least: number, most: number): number {
    if (value === undefined) return otherwise
    const ms = durationMs(value)
    if (ms === undefined)
      wrong(
        `${at} is ${show(value)}, not a duration`,
        "write '500ms', '10s', '1m', '2h' or a number of milliseconds"
      )
    // Nobody who writes 10 means 10 ms.
    else if (typeof value === 'number' && value < 100)
      wrong(`${at} is ${value}, without a unit`, `write '${value}s' or '${value}ms'`)
    else if (ms < least || ms > most) {
      wrong(`${at} is ${show(value)}`, `from '${durationText(least)}' to '${durationText(most)}'`)
    }
    return ms ?? otherwise
  }

  function hook(at: string, from: Record<string, unknown>, name: string): Record<string, unknown> {
    const value = from[name]
    if (value === undefined) return {}
    if (!isFunction(value)) wrong(`${at}${name} is ${show(value)}`, `${name} is a function`)
    return { [name]: value }
  }

  function onlyKnown(at: string, value: Record<string, unknown>, known: string[]): void {
    for (const name of Object.keys(value)) {
      if (known.includes(name)) continue
      const meant = nearest(name, known)
      wrong(`${at}${name} is not a field`, meant ? `did you mean ${meant}?` : `there are ${listed(known)}`)
    }
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null
const isFunction = (value: unknown): value is (about: unknown) => unknown => typeof value === 'function'
const listed = (names: readonly string[]): string => names.map(name => `'${name}'`).join(', ')

function isSecret(value: string): boolean {
  const [, base64 = ''] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(value) ?? []
  const bytes = Buffer.from(base64, 'base64').length
  return bytes >= 24 && bytes <= 64
}

function show(value: unknown): string {
  if (value === undefined) return 'missing'
  if (value === null) return 'null'
  if (typeof value === 'string') return `'${value.slice(0, 60)}'`
  if (typeof value === 'number' || typeof value === 'boolean') return String(value)
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'object' ? 'an object' : `a ${typeof value}`
}

const requestFields: Record<TransportName, string[]> = {
  http: ['url', 'method', 'headers', 'body'],
  dubbo: ['broker', 'service', 'method', 'args', 'parameters', 'attachments'],
  dubbo2: ['broker', 'service', 'method', 'types', 'args', 'version', 'group', 'attachments'],
  rabbitmq: ['broker', 'exchange', 'routingKey', 'headers', 'body'],
  kafka: ['broker', 'topic', 'key', 'headers', 'value'],
  rocketmq: ['broker', 'topic', 'tag', 'keys', 'properties', 'group', 'delayMs', 'body'],
  nats: ['broker', 'subject', 'headers', 'payload'],
  'redis-stream': ['broker', 'stream', 'maxlen', 'create', 'requestFields']
}

/**
 * TypeScript lets a function return unknown members. So a `boddy` would be ignored, and the downstream would get something
 * else. Here it fails the attempt, and the error suggests the right name.
 */
export function checkedRequest(
  transport: string,
  downstream: string,
  request: (about: unknown) => unknown
): (about: unknown) => unknown {
  const known = requestFields[transport as TransportName] ?? []
  return about => {
    const made = request(about)
    return isThenable(made) ? Promise.resolve(made).then(check) : check(made)
  }

  function check(made: unknown): unknown {
    if (typeof made !== 'object' || made === null) {
      throw new Error(
        `the request of ${downstream} is ${made === null ? 'null' : typeof made}, not an object`
      )
    }
    for (const name of Object.keys(made)) {
      if (known.includes(name)) continue
      const meant = nearest(name, known)
      throw new Error(
        `the request of ${downstream} has no member ${name}: ${meant ? `did you mean ${meant}?` : `there are ${known.join(', ')}`}`
      )
    }
    return made
  }
}
