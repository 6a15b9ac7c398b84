import type { Outcome } from '../../domain/types.ts'
import { deadlines } from '../deadlines.ts'
import { bytesRead } from './answer.ts'
import { contentDecoder } from './content-coding.ts'
import { Exchange, type ExchangeLimits } from './exchange.ts'
import type { Guard } from '../egress/guard.ts'
import { pools, type PoolLimits } from './pools.ts'
import type { Accepted, SendContext } from '../types.ts'

export type HttpLimits = PoolLimits & ExchangeLimits

/** A request in the form that is written. `headers`: names and values alternate. */
export interface HttpMessage {
  url: URL
  method: string
  headers: string[]
  body: string | Uint8Array
}

/** Sends requests over shared connections to judged addresses. Each ends at its deadline. */
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

/** Methods that expect a body (RFC 9110, section 9.3). */
const withBody = new Set(['POST', 'PUT', 'PATCH'])

export function exchanges(guard: Guard, given: Partial<HttpLimits> = {}): Exchanges {
  const limits = { ...defaults, ...given }
  const clock = deadlines()
  const decoder = contentDecoder(bytesRead)
  const open = pools(guard, limits)

  return {
    send({ url, method, headers, body }, context, accepted) {
      // undici closes the connection after a body that the method does not expect. Such a request shares no connection.
      const limit = body.length === 0 || withBody.has(method) ? context.limit : undefined
      const lane = open.lane(url, context.downstream, limit)
      return new Promise(resolve => {
        const exchange = new Exchange(context, accepted, limits, decoder, outcome => {
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

/** Headers that the transport or Ackbox writes. A handler must not forge or break them. */
const reserved =
  /^(?:webhook-|ackbox-)|^(?:host|content-length|transfer-encoding|connection|keep-alive|upgrade|expect|te|trailer)$/
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
// The characters of a header value (RFC 9110): no CR, LF or NUL, and only latin1.
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/

/** Names and values alternate, the handler's headers first. Returns a text if a header of the handler is wrong. */
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
    else headers.push(name, value) // a Dubbo provider distinguishes attachments by case
  }
  if (!given.has('content-type')) headers.push('content-type', 'application/json')
  if (!given.has('accept-encoding')) headers.push('accept-encoding', 'identity')
  const ours = context.headers(body)
  for (const name in ours) {
    const value = ours[name]
    if (value !== undefined && !given.has(name)) headers.push(name, value)
  }
  return headers
}
