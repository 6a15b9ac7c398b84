import type { DemoTask } from './tasks.ts'

/** The members that the demo reads from the API's answer about a task. */
export interface SeenTask {
  taskNo: string
  messageCode: string
  status: string
  createdAt: string
  retryTimes?: number
  deliveries: {
    downstream: string
    status: string
    reason?: string
    triesLeft: number
    deliveredAt?: string
    handledAt?: string
  }[]
}

export interface TallyCounts {
  tasks: number
  handled: number
  failed: number
  deliveries: number
  delivered: number
  attempts: number
  retried: number
  /** The times from accepted to HANDLED, sorted, in ms. */
  latencies: number[]
}

/** The retry limit of the sample handlers. A task may set its own. */
const samplesTry = 10

/** Counts the seen tasks of one messageCode, or all. */
export function count(seen: Iterable<SeenTask>, messageCode?: string): TallyCounts {
  const counts: TallyCounts = {
    tasks: 0,
    handled: 0,
    failed: 0,
    deliveries: 0,
    delivered: 0,
    attempts: 0,
    retried: 0,
    latencies: []
  }
  for (const task of seen) {
    if (messageCode !== undefined && task.messageCode !== messageCode) continue
    counts.tasks++
    if (task.status === 'HANDLED') counts.handled++
    if (task.status === 'FAILED') counts.failed++
    for (const delivery of task.deliveries) {
      if (delivery.reason === 'SKIPPED') continue
      counts.deliveries++
      // The attempt number is no count of tries: it also rises when a delivery is released without a send.
      const tries = (task.retryTimes ?? samplesTry) - delivery.triesLeft
      counts.attempts += tries
      counts.retried += Math.max(0, tries - 1)
      if (delivery.deliveredAt || delivery.status === 'HANDLED') counts.delivered++
    }
    if (task.status === 'HANDLED') counts.latencies.push(tookMs(task))
  }
  counts.latencies.sort((a, b) => a - b)
  return counts
}

function tookMs(task: SeenTask): number {
  const ends = task.deliveries.flatMap(({ handledAt }) => (handledAt ? [Date.parse(handledAt)] : []))
  return Math.max(0, Math.max(...ends) - Date.parse(task.createdAt))
}

/** The percentile of sorted numbers. Undefined for an empty list. */
export function percentile(sorted: number[], p: number): number | undefined {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))]
}

/** One line for each task with an unexpected result. */
export function surprises(expected: Iterable<DemoTask>, seen: ReadonlyMap<string, SeenTask>): string[] {
  const lines: string[] = []
  for (const { post, ends, reason } of expected) {
    const task = seen.get(post.taskNo)
    const why = task?.deliveries.find(({ status }) => status === 'FAILED')?.reason
    if (task?.status === ends && why === reason) continue
    const is = task ? [task.status, why].filter(Boolean).join(' ') : 'not found'
    lines.push(
      `${post.taskNo} (${post.messageCode}) is ${is}, expected ${[ends, reason].filter(Boolean).join(' ')}`
    )
  }
  return lines
}
