import type { Parcel } from '../../src/transport/transport.ts'

const never = new AbortController().signal

/** What a send is given beside its request, with a deadline long enough to fail a test if it is ever needed. */
export function parcel(more: Partial<Parcel> & { ours?: Record<string, string> } = {}): Parcel {
  const { ours = {}, ...rest } = more
  return { downstream: 'warehouse', timeoutMs: 8_000, signal: never, headers: () => ours, ...rest }
}
