import type { DemoTask } from './tasks.ts'

/** What the demo looks at in a task as the API answers it. */
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

export interface Counts {
  tasks: number
  handled: number
  failed: number
  deliveries: number
  delivered: number
  attempts: number
  retried: number
  /** Accepted to HANDLED, sorted, in ms. */
  latencies: number[]
}

/** The limit that the sample handlers set, where a task sets none of its own. */
const samplesTry = 10

/** Counts over what was seen of the tasks of one messageCode, or of all. */
export function count(seen: Iterable<SeenTask>, messageCode?: string): Counts {
  const counts: Counts = {
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
      // Not by the attempt's number: it also rises with a hint that was given back and never sent.
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

/** The p-th part of sorted numbers; undefined of none. */
export function percentile(sorted: number[], p: number): number | undefined {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))]
}

/** What did not end as it should, one line each. */
export function surprises(asked: Iterable<DemoTask>, seen: ReadonlyMap<string, SeenTask>): string[] {
  const lines: string[] = []
  for (const { post, ends, reason } of asked) {
    const task = seen.get(post.taskNo)
    const why = task?.deliveries.find(({ status }) => status === 'FAILED')?.reason
    if (task?.status === ends && why === reason) continue
    const is = task ? [task.status, why].filter(Boolean).join(' ') : 'not found'
    lines.push(
      `${post.taskNo} (${post.messageCode}) is ${is}, and should be ${[ends, reason].filter(Boolean).join(' ')}`
    )
  }
  return lines
}
