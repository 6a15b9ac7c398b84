import type { Transport, TransportDeps } from './transport.ts'

/** What a handler's `request` returns for dubbo. */
export interface DubboRequest {
  /** Which provider: the name of a broker in the settings, `dubbo` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /** One for each parameter of the method, in order. */
  args: readonly unknown[]
  version?: string
  group?: string
  /** More attachments. */
  attachments?: Record<string, string>
}

export function dubboTransport(deps: TransportDeps): Transport<DubboRequest> {
  throw new Error('not built yet')
}
