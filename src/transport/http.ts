import type { Outcome } from '../task/task.ts'
import { deadlines } from './deadlines.ts'
import { Exchange, type ExchangeLimits } from './exchange.ts'
import type { Guard } from './guard.ts'
import { pools, type PoolLimits } from './pools.ts'
import type { Parcel, Transport } from './transport.ts'
import type { SafeUrl } from './url.ts'

/** What a handler's `request` returns for HTTP. `content-type` is application/json unless `headers` say otherwise. */
export interface HttpRequest {
  url: string | URL | SafeUrl
  /** POST, PUT, PATCH, DELETE or GET; POST by default. */
  method?: string
  headers?: Record<string, string>
  /** The text of messageBody by default; nothing for GET. */
  body?: string | Uint8Array
}

export interface HttpDeps {
  guard: Guard
  limits?: Partial<PoolLimits & ExchangeLimits>
}

const defaults: PoolLimits & ExchangeLimits = {
  connectMs: 5_000,
  origins: 512,
  connections: 1_024,
  idleMs: 60_000,
  bodyMs: 2_000
}

const methods = new Set(['POST', 'PUT', 'PATCH', 'DELETE', 'GET'])

/** Headers that the transport or Ackbox itself writes: a handler's own would forge or break them. */
const reserved =
  /^(?:webhook-|ackbox-)|^(?:host|content-length|transfer-encoding|connection|keep-alive|upgrade|expect|te|trailer)$/
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
// What a header value may hold, by RFC 9110: no CR, LF, NUL, nothing beyond latin1
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/

export function httpTransport(deps: HttpDeps): Transport<HttpRequest> {
  const limits = { ...defaults, ...deps.limits }
  const clock = deadlines()
  const open = pools(deps.guard, limits)

  return {
    name: 'http',

    send(request, parcel, accepted) {
      if (typeof request !== 'object' || request === null)
        return ended('bad_request: the handler gave no request')
      if (parcel.signal.aborted) return ended('shutdown')
      if (parcel.timeoutMs <= 0) return ended('timeout')
      const url = deps.guard.check(String(request.url))
      if (!(url instanceof URL)) return Promise.resolve(url)
      const method = request.method ?? 'POST'
      if (!methods.has(method))
        return ended('bad_request: the method must be POST, PUT, PATCH, DELETE or GET')
      const body = request.body ?? (method === 'GET' ? '' : (parcel.raw ?? ''))
      if (typeof body !== 'string' && !(body instanceof Uint8Array))
        return ended('bad_request: the body must be text or bytes')
      const headers = headersOf(request.headers ?? {}, parcel, body)
      if (typeof headers === 'string') return ended(`bad_request: ${headers}`)

      const lane = open.lane(url)
      return new Promise(resolve => {
        const exchange = new Exchange(parcel, accepted, limits, outcome => {
          clock.delete(exchange)
          lane.done()
          resolve(outcome)
        })
        clock.add(exchange)
        lane.dispatch({ path: url.pathname + url.search, method, headers, body }, exchange)
      })
    },

    close: () => open.close()
  }
}

const ended = (reason: string): Promise<Outcome> => Promise.resolve({ kind: 'failed', reason })

/** Names and values by turns, the handler's first; or what is wrong with the handler's. */
function headersOf(
  own: Record<string, string>,
  parcel: Parcel,
  body: string | Uint8Array
): string[] | string {
  const headers = ['user-agent', 'ackbox']
  const given = new Set<string>()
  for (const [name, value] of Object.entries(own)) {
    const lower = name.toLowerCase()
    if (!token.test(name)) return 'a header name is not a token'
    if (reserved.test(lower)) return `the header ${lower} is not the handler's to set`
    if (given.has(lower)) return `the header ${lower} is set twice`
    if (typeof value !== 'string' || !fieldValue.test(value))
      return `the header ${lower} holds a character that no header may`
    given.add(lower)
    if (lower === 'user-agent') headers[1] = value
    else headers.push(lower, value)
  }
  if (!given.has('content-type')) headers.push('content-type', 'application/json')
  const ours = parcel.headers(body)
  for (const name in ours) {
    const value = ours[name]
    if (value !== undefined && !given.has(name)) headers.push(name, value)
  }
  return headers
}
