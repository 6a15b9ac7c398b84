import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for nats. */
export interface NatsRequest {
  /** The name of a broker in the settings, `nats` by default. */
  broker?: string
  /** Of a JetStream stream. */
  subject: string
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  payload?: string | Uint8Array
}

export function natsTransport(deps: TransportDeps): Transport<NatsRequest> {
  throw new Error('not built yet')
}
