import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for rocketmq. */
export interface RocketmqRequest {
  /** The name of a broker in the settings, `rocketmq` by default. */
  broker?: string
  topic: string
  tag?: string
  keys?: readonly string[]
  properties?: Record<string, string>
  /** FIFO: messages of one group keep their order. The topic's type must be FIFO. */
  group?: string
  /** Ms until consumers see it. The topic's type must be DELAY. */
  delayMs?: number
  /** The text of messageBody by default. */
  body?: string | Uint8Array
}

export function rocketmqTransport(deps: TransportDeps): Transport<RocketmqRequest> {
  throw new Error('not built yet')
}
