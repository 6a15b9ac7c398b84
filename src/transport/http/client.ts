import type { Outcome } from '../../domain/types.ts'
import { deadlines } from '../deadlines.ts'
import { Exchange, type ExchangeLimits } from './exchange.ts'
import type { Guard } from '../egress/guard.ts'
import { pools, type PoolLimits } from './pools.ts'
import type { Accepted, SendContext } from '../types.ts'

export type HttpLimits = PoolLimits & ExchangeLimits

/** A request as it is written. `headers`: names and values by turns. */
export interface HttpMessage {
  url: URL
  method: string
  headers: string[]
  body: string | Uint8Array
}

/** Requests and their answers over shared connections to judged addresses, each ended by its deadline. */
export interface Exchanges {
  send(request: HttpMessage, context: SendContext, accepted?: Accepted): Promise<Outcome>
  close(): Promise<void>
}

const defaults: HttpLimits = {
  connectMs: 5_000,
  origins: 512,
  connections: 1_024,
  idleMs: 60_000,
  bodyMs: 2_000
}

/** Methods that call for a body (RFC 9110, section 9.3). */
const withBody = new Set(['POST', 'PUT', 'PATCH'])

export function exchanges(guard: Guard, given: Partial<HttpLimits> = {}): Exchanges {
  const limits = { ...defaults, ...given }
  const clock = deadlines()
  const open = pools(guard, limits)

  return {
    send({ url, method, headers, body }, context, accepted) {
      // undici closes the connection after a body that the method does not call for: that one shares none.
      const limit = body.length === 0 || withBody.has(method) ? context.limit : undefined
      const lane = open.lane(url, context.downstream, limit)
      return new Promise(resolve => {
        const exchange = new Exchange(context, accepted, limits, outcome => {
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

/** Headers that the transport or Ackbox itself writes: a handler's own would forge or break them. */
const reserved =
  /^(?:webhook-|ackbox-)|^(?:host|content-length|transfer-encoding|connection|keep-alive|upgrade|expect|te|trailer)$/
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
// What a header value may hold, by RFC 9110: no CR, LF, NUL, nothing beyond latin1
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/

/** Names and values by turns, the handler's first; or what is wrong with the handler's. */
export function headersOf(
  own: Record<string, string>,
  context: Pick<SendContext, 'headers'>,
  body: string | Uint8Array
): string[] | string {
  const headers = ['user-agent', 'ackbox']
  const given = new Set<string>()
  for (const [name, value] of Object.entries(own)) {
    const lower = name.toLowerCase()
    if (!token.test(name)) return 'a header name is not a token'
    if (reserved.test(lower)) return `a handler must not set the header ${lower}`
    if (given.has(lower)) return `the header ${lower} is set twice`
    if (typeof value !== 'string' || !fieldValue.test(value))
      return `the header ${lower} has a character that headers must not have`
    given.add(lower)
    if (lower === 'user-agent') headers[1] = value
    else headers.push(name, value) // a Dubbo provider tells attachments by their case
  }
  if (!given.has('content-type')) headers.push('content-type', 'application/json')
  const ours = context.headers(body)
  for (const name in ours) {
    const value = ours[name]
    if (value !== undefined && !given.has(name)) headers.push(name, value)
  }
  return headers
}
