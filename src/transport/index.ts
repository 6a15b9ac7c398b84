import type { Guard } from './guard.ts'
import { httpTransport } from './http.ts'
import type { Transport } from './transport.ts'

export interface TransportDeps {
  guard: Guard
}

/** Every way out of the house. One more transport: one file, one line here, and the conformance suite run over it. */
const makers = {
  http: httpTransport
} satisfies Record<string, (deps: TransportDeps) => Transport<never>>

export type TransportName = keyof typeof makers
export const transportNames = Object.keys(makers) as TransportName[]

export function transports(deps: TransportDeps): {
  [Name in TransportName]: ReturnType<(typeof makers)[Name]>
} {
  return { http: makers.http(deps) }
}
