import type { Transport, TransportDeps } from '../transport.ts'

/** What a handler's `request` returns for dubbo2. */
export interface Dubbo2Request {
  /** Which provider: the name of a broker in the settings, `dubbo2` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /** The Java type of each argument: `java.lang.String`, `long`, `com.acme.Order`. */
  types: readonly string[]
  /** One for each parameter of the method, in order. */
  args: readonly unknown[]
  version?: string
  group?: string
  /** More attachments. */
  attachments?: Record<string, string>
}

export function dubbo2Transport(deps: TransportDeps): Transport<Dubbo2Request> {
  throw new Error('not built yet')
}
