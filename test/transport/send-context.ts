import type { SendContext } from '../../src/transport/types.ts'

const never = new AbortController().signal

/** The context of a send. Its deadline is so long that a test fails if it ever needs the deadline. */
export function sendContext(
  more: Partial<SendContext> & { ours?: Record<string, string> } = {}
): SendContext {
  const { ours = {}, ...rest } = more
  return { downstream: 'warehouse', timeoutMs: 60_000, signal: never, headers: () => ours, ...rest }
}
