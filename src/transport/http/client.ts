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
