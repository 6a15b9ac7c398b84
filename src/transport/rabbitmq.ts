import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for rabbitmq. */
export interface RabbitmqRequest {
  /** The name of a broker in the settings, `rabbitmq` by default. */
  broker?: string
  /** '' is the default exchange: the routing key is then a queue's name. */
  exchange?: string
  routingKey: string
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  body?: string | Uint8Array
}

export function rabbitmqTransport(deps: TransportDeps): Transport<RabbitmqRequest> {
  throw new Error('not built yet')
}
