// Constants that the run shares with its handlers, its sink and the judge. Times are in ms.

/** The same as in handlers/. They are short, so that a run has many leases, receipt timeouts and backoffs. */
export const timeoutMs = 2_000
export const receiptTimeoutMs = 3_000
export const longestBackoffMs = 2_200
export const defaultTimes = 30

export const leaseMarginMs = 1_500
export const sweepMs = 1_000
export const leaseMs = timeoutMs + leaseMarginMs
/** A delivery that was due or in flight during a fault is attempted again within this time after the fault. */
export const rtoMs = leaseMs + sweepMs + 2_000

/** The most deliveries that one worker has in flight to a downstream. */
export const concurrency = 50

export const downstreamsOf: Record<string, readonly string[]> = {
  'chaos.plain': ['plain'],
  'chaos.receipt': ['receipted'],
  'chaos.pair': ['left', 'right']
}
export type Code = 'chaos.plain' | 'chaos.receipt' | 'chaos.pair'

/** Downstreams whose requests share connections (`limit.pipelining`). */
export const sharing: readonly string[] = ['left']

/** Whether a receipt is owed. The task's needCallback overrides that of a downstream that declares it. */
export function isOwed(downstream: string, needCallback: boolean | undefined): boolean {
  return (downstream === 'receipted' || downstream === 'right') && (needCallback ?? true)
}

/** The variable from which the handlers read the signing secret. The secret is also a canary. */
export const secretVariable = 'CHAOS_SIGNING_SECRET'
/** The variable with the unique name of a launch. Its requests carry the name in a header. */
export const senderVariable = 'CHAOS_PROCESS'
