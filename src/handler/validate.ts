import { downstreamForm, messageCodeForm } from '../domain/ids.ts'
import { defaultBackoff } from '../domain/retry-policy.ts'
import type { Backoff } from '../domain/types.ts'
import { durationMs, durationText } from './define.ts'
import type { Limit, LoadedDownstream, LoadedHandler } from './loaded.ts'
import { checkedRequest, requestRules, type HandlerRules } from './checked-request.ts'
import { show } from './show.ts'
import { nearest } from '../runtime/nearest.ts'
import { isSigningSecret } from '../transport/sign.ts'
import { defined } from '../domain/optional-members.ts'

/** One error of a handler, and how to fix it. */
export interface HandlerError {
  what: string
  fix: string
}

const fields = {
  handler: ['messageCode', 'body', 'strictBody', 'downstreams', 'onReceipt', 'checkBack'],
  downstream:
    'transport request send when beforeSend afterSend probe reconcile accepted needCallback onFailed receiptTimeout retry limit secrets format'.split(
      ' '
    ),
  probe: ['request', 'handled', 'required'],
  reconcile: ['every', 'settle', 'run'],
  retry: ['times', 'backoff'],
  limit: ['concurrency', 'perSecond', 'timeout', 'pipelining']
}
const answering = new Set(['http', 'dubbo', 'dubbo2']) // their answers are passed to `accepted`
const minute = 60_000
const day = 86_400_000

/**
 * Checks the export of a handler file and returns a handler that the service can trust, or all its errors. TypeScript
 * finds most of them earlier, but handlers may be JavaScript.
 */
export function checkHandler(
  exported: unknown,
  file: string,
  transports: readonly string[],
  rules: HandlerRules = { strictBody: false, warn() {} }
): LoadedHandler | HandlerError[] {
  const errors: HandlerError[] = []
  const wrong = (what: string, fix: string): undefined => {
    errors.push({ what, fix })
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
  const strictBody = exported['strictBody'] ?? false
  if (typeof strictBody !== 'boolean') wrong(`strictBody is ${show(strictBody)}`, 'write true or false')
  const bodyRules = requestRules(rules, show(messageCode).slice(1, -1), strictBody === true)
  const own = hooks('', exported, ['onReceipt', 'checkBack'])
  const downstreams = destinations(exported['downstreams'])
  if (errors.length > 0) return errors
  // The checks above prove this type.
  return { messageCode, file, body, downstreams, ...own } as LoadedHandler

  function code(value: unknown): unknown {
    if (typeof value === 'string' && messageCodeForm.test(value)) return value
    return wrong(
      `messageCode is ${show(value)}`,
      "write 1 to 255 letters, digits, '.', '_' or '-', a letter or digit first: 'order.paid'"
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
    if (!downstreamForm.test(name)) {
      wrong(
        `the name of ${at} is invalid`,
        "write 1 to 32 lower-case letters, digits or '-', a letter first: 'warehouse'"
      )
    }
    if (!isObject(value))
      return wrong(`${at} is ${show(value)}`, `${name}: { transport: 'http', request: … }`)
    onlyKnown(`${at}.`, value, fields.downstream)
    const transport = transportOf(at, value['transport'])
    const { send, request = transport === 'custom' ? sendOf(at, send) : undefined } = value
    if (send !== undefined && transport && transport !== 'custom')
      wrong(`${at}.send works only with the transport custom, not with ${transport}`, 'write request instead')
    if (value['request'] !== undefined && transport === 'custom')
      wrong(`${at}.request is never called: custom sends by itself`, 'write send instead')
    if (!isFunction(request) && transport !== 'custom') {
      wrong(
        `${at}.request is ${show(request)}`,
        'request: ({ body, raw }) => ({ url: url`https://…`, body: raw })'
      )
    }
    if (value['accepted'] !== undefined && transport && !answering.has(transport)) {
      wrong(`${at}.accepted is never called: ${transport} returns only a confirmation`, 'leave it out')
    }
    const { needCallback, onFailed } = value
    if (needCallback !== undefined && typeof needCallback !== 'boolean')
      wrong(`${at}.needCallback is ${show(needCallback)}`, 'write true or false')
    if (onFailed !== undefined && onFailed !== 'hold' && onFailed !== 'skip')
      wrong(`${at}.onFailed is ${show(onFailed)}`, "write 'hold' or 'skip'")
    const format = value['format']
    if (
      format !== undefined &&
      !(format === 'cloudevents' && (transport === 'http' || transport === 'kafka'))
    )
      wrong(
        `${at}.format is ${show(format)}`,
        "write format: 'cloudevents' (only with http and kafka), or leave it out"
      )
    return {
      name,
      transport,
      ...(isFunction(request) && transport
        ? { request: checkedRequest(transport, name, request, bodyRules) }
        : {}),
      ...hooks(`${at}.`, value, ['when', 'beforeSend', 'afterSend', 'accepted']),
      ...probe(at, value['probe'], transport, name),
      ...reconcile(`${at}.reconcile`, value['reconcile']),
      ...defined({ needCallback, onFailed }),
      policy: {
        ...retry(at, value['retry']),
        receiptTimeoutMs: time(`${at}.receiptTimeout`, value['receiptTimeout'], 60_000, 100, day)
      },
      limit: limit(at, value['limit'], transport),
      ...secrets(at, value['secrets']),
      ...defined({ format })
    } as LoadedDownstream
  }

  /** Wraps `send` in a request. The transport `custom` calls it within the deadline. */
  function sendOf(at: string, send: unknown): unknown {
    if (isFunction(send)) return (about: unknown) => ({ send: (tools: unknown) => send(about, tools) })
    return wrong(
      `${at}.send is ${show(send)}`,
      "send: async ({ raw }, { signal }) => ({ kind: 'delivered' })"
    )
  }

  function probe(at: string, value: unknown, transport: string | undefined, name: string): object {
    if (value === undefined) return {}
    const example = 'probe: { request: ({ task }) => ({ url: … }), handled: ({ json }) => json?.handled }'
    if (!isObject(value)) return { probe: wrong(`${at}.probe is ${show(value)}`, example) }
    onlyKnown(`${at}.probe.`, value, fields.probe)
    if (transport && !answering.has(transport))
      wrong(`${at}.probe is never called: ${transport} has no answer`, 'leave it out')
    const { request, handled, required = false } = value
    if (!isFunction(request) || !isFunction(handled))
      return { probe: wrong(`${at}.probe needs two functions, request and handled`, example) }
    if (typeof required !== 'boolean')
      wrong(`${at}.probe.required is ${show(required)}`, 'write true or false')
    return {
      probe: {
        request: checkedRequest(transport ?? '', `${name}'s probe`, request, bodyRules),
        handled,
        required
      }
    }
  }

  function reconcile(at: string, value: unknown): object {
    if (value === undefined) return {}
    const example = "reconcile: { every: '1d', run: async ({ from, to }) => taskNos }"
    if (!isObject(value)) return { reconcile: wrong(`${at} is ${show(value)}`, example) }
    onlyKnown(`${at}.`, value, fields.reconcile)
    if (!isFunction(value['run'])) wrong(`${at}.run is ${show(value['run'])}`, example)
    if (value['every'] === undefined) wrong(`${at}.every is missing`, example)
    const everyMs = time(`${at}.every`, value['every'], day, minute, 31 * day)
    return {
      reconcile: {
        everyMs,
        settleMs: time(`${at}.settle`, value['settle'], 10 * minute, 1, day),
        run: value['run']
      }
    }
  }

  function transportOf(at: string, value: unknown): string | undefined {
    if (typeof value === 'string' && transports.includes(value)) return value
    const meant = typeof value === 'string' ? nearest(value, transports) : undefined
    return wrong(
      `${at}.transport is ${show(value)}, which is not a transport`,
      meant ? `did you mean '${meant}'?` : `the transports are ${listed(transports)}`
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
      wrong(`${at}.limit.pipelining works only with http, not with ${transport}`, 'leave it out')
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
    // An empty secret comes from an `env` name that is not set. The loader reports that as an error of its own.
    const good = list.every(each => typeof each === 'string' && (each === '' || isSigningSecret(each)))
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
    // A plain 10 hardly means 10 ms.
    else if (typeof value === 'number' && value < 100)
      wrong(`${at} is ${value}, without a unit`, `write '${value}s' or '${value}ms'`)
    else if (ms < least || ms > most) {
      wrong(`${at} is ${show(value)}`, `write '${durationText(least)}' to '${durationText(most)}'`)
    }
    return ms ?? otherwise
  }

  function hooks(at: string, from: Record<string, unknown>, names: string[]): Record<string, unknown> {
    const given = names.filter(name => from[name] !== undefined)
    for (const name of given)
      if (!isFunction(from[name])) wrong(`${at}${name} is ${show(from[name])}`, 'write a function')
    return Object.fromEntries(given.map(name => [name, from[name]]))
  }

  function onlyKnown(at: string, value: Record<string, unknown>, known: string[]): void {
    for (const name of Object.keys(value)) {
      if (known.includes(name)) continue
      const meant = nearest(name, known)
      wrong(
        `${at}${name} is not a field`,
        meant ? `did you mean ${meant}?` : `the fields are ${listed(known)}`
      )
    }
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null
const isFunction = (value: unknown): value is (...given: unknown[]) => unknown => typeof value === 'function'
const listed = (names: readonly string[]): string => names.map(name => `'${name}'`).join(', ')
