import type { Moment } from '../fault/story.ts'

/** Every moment on a task's way, how one gets there, and what a fault there may cost at most. */
export const moments: Moment[] = [
  { name: 'accept.before_commit', way: 'plain', most: 1 },
  { name: 'accept.after_commit', way: 'plain', most: 1 },
  { name: 'queue.before_add', way: 'plain', most: 1 },
  // The job is there: another worker may take it while this one stands still.
  { name: 'queue.after_add', way: 'plain', most: 1 },
  { name: 'claim.after_commit', way: 'later', most: 1 },
  { name: 'execute.before_send', way: 'plain', most: 1 },
  { name: 'execute.after_send', way: 'plain', most: 2, isHeld: true },
  { name: 'execute.after_answer', way: 'plain', most: 2, isStale: true },
  { name: 'complete.before_commit', way: 'plain', most: 2, isStale: true },
  { name: 'complete.after_commit', way: 'plain', most: 1 },
  // Its receipt is tried again, and comes to the process that goes on: at its own port a new attempt brings it.
  { name: 'receipt.before_commit', way: 'receipt', most: 2 },
  { name: 'receipt.after_commit', way: 'receipt', most: 2 },
  { name: 'rescue.after_select', way: 'no receipt', most: 2 },
  { name: 'rescue.after_commit', way: 'no receipt', most: 2 },
  { name: 'alarm.after_send', way: 'refused', most: 1, ends: 'FAILED' },
  { name: 'shutdown.after_drain', way: 'shutdown', most: 1 }
]
