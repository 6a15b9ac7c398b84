import type { Loaded } from '../db/load.ts'

/** A delivery that this process has just sent and that owes a receipt. */
export interface OwedOne {
  taskId: string
  messageCode: string
  attempt: number
}

/**
 * So that the receipt of what was sent from here need not look it up. Only a short cut, as `Fresh` is: the guard of the move
 * judges, and whoever is overtaken looks.
 */
export interface Owed {
  keep(delivery: Loaded): void
  /** Gives it once. */
  take(taskNo: string, downstream: string, attempt: number): OwedOne | undefined
}

/** Receipts that never come, or go to another process, leave theirs behind: the oldest go first. */
const most = 10_000

export function owed(): Owed {
  const kept = new Map<string, OwedOne>()
  // No name of a downstream holds a line break.
  const keyOf = (taskNo: string, downstream: string): string => `${taskNo}\n${downstream}`
  return {
    keep({ task, downstream, attempt }) {
      kept.set(keyOf(task.taskNo, downstream), { taskId: task.id, messageCode: task.messageCode, attempt })
      if (kept.size <= most) return
      const [oldest] = kept.keys()
      if (oldest !== undefined) kept.delete(oldest)
    },
    take(taskNo, downstream, attempt) {
      const key = keyOf(taskNo, downstream)
      const one = kept.get(key)
      if (one?.attempt !== attempt) return undefined
      kept.delete(key)
      return one
    }
  }
}
