// What the run agrees upon with its handlers and its sink, and what follows from it for the judge. Ms.

/** As in handlers/: short, so that a run sees many leases, receipt timeouts and backoffs. */
export const timeoutMs = 2_000
export const receiptTimeoutMs = 3_000
export const longestBackoffMs = 2_200
export const defaultTimes = 30

export const leaseMarginMs = 1_500
export const sweepMs = 1_000
export const leaseMs = timeoutMs + leaseMarginMs
/** What was due or in flight during a fault is attempted again within this after it ended. */
export const rtoMs = leaseMs + sweepMs + 2_000

/** The most deliveries that one worker has under way to a downstream. */
export const concurrency = 50

export const downstreamsOf: Record<string, readonly string[]> = {
  'chaos.plain': ['plain'],
  'chaos.receipt': ['receipted'],
  'chaos.pair': ['left', 'right']
}
export type Code = 'chaos.plain' | 'chaos.receipt' | 'chaos.pair'

/** Those whose requests share connections (`limit.pipelining`). */
export const sharing: readonly string[] = ['left']

/** Whether a receipt is owed: the task's word over that of a downstream that declares needCallback itself. */
export function isOwed(downstream: string, asked: boolean | undefined): boolean {
  return (downstream === 'receipted' || downstream === 'right') && (asked ?? true)
}

/** Signing secrets come from the handlers, which read them here by name; each is also a canary. */
export const secretVariable = 'CHAOS_SIGNING_SECRET'
/** Each launch of a process has a name of its own, which its requests bear. */
export const senderVariable = 'CHAOS_PROCESS'
