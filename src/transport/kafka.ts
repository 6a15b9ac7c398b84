import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for kafka. */
export interface KafkaRequest {
  /** The name of a broker in the settings, `kafka` by default. */
  broker?: string
  topic: string
  /** Records of one key keep their order and their partition. */
  key?: string | Uint8Array
  headers?: Record<string, string>
  /** The text of messageBody by default. */
  value?: string | Uint8Array
}

export function kafkaTransport(deps: TransportDeps): Transport<KafkaRequest> {
  throw new Error('not built yet')
}
