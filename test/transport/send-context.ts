import type { SendContext } from '../../src/transport/types.ts'

const never = new AbortController().signal

/** What a send is given beside its request, with a deadline long enough to fail a test if it is ever needed. */
export function sendContext(
  more: Partial<SendContext> & { ours?: Record<string, string> } = {}
): SendContext {
  const { ours = {}, ...rest } = more
  return { downstream: 'warehouse', timeoutMs: 8_000, signal: never, headers: () => ours, ...rest }
}
