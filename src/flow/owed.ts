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

/** Where so many are waited for, the next are looked up: to forget the oldest would be to forget the one that comes next. */
const most = 10_000
/** What came not by then, or went to another process, makes room. */
const longMs = 60_000

export function owed(now = () => performance.now()): Owed {
  const kept = new Map<string, OwedOne & { at: number }>()
  let fullUntil = 0
  // No name of a downstream holds a line break.
  const keyOf = (taskNo: string, downstream: string): string => `${taskNo}\n${downstream}`
  const isFull = (at: number): boolean => {
    if (kept.size < most) return false
    // Not each time: a map finds its first entry behind all that were deleted before it.
    if (at < fullUntil) return true
    for (const [key, one] of kept) {
      fullUntil = one.at + longMs
      if (at < fullUntil) break
      kept.delete(key)
    }
    return kept.size >= most
  }
  return {
    keep({ task, downstream, attempt }) {
      const at = now()
      const key = keyOf(task.taskNo, downstream)
      // In the order of their age: one that is sent again goes to the end.
      if (attempt > 1) kept.delete(key)
      if (isFull(at)) return
      kept.set(key, { taskId: task.id, messageCode: task.messageCode, attempt, at })
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
