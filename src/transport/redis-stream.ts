import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for redis-stream. */
export interface RedisStreamRequest {
  /** The name of a broker in the settings, `redis-stream` by default. */
  broker?: string
  stream: string
  /** Cut to about so many entries. */
  maxlen?: number
  /** The fields of the entry; by default one, `body`, with the text of messageBody. */
  fields?: Record<string, string>
}

export function redisStreamTransport(deps: TransportDeps): Transport<RedisStreamRequest> {
  throw new Error('not built yet')
}
