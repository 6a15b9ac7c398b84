import type { Loaded } from '../db/load.ts'

/** A delivery that this process has just sent and that owes a receipt. */
export interface OwedOne {
  taskId: string
  taskNo: string
  messageCode: string
  downstream: string
  attempt: number
}

/**
 * By the tokens that went out from here, so that a receipt which brings one back need neither prove it nor be looked up.
 * Only a short cut, as `Fresh` is: the guard of the move judges, and whoever is overtaken looks.
 */
export interface Owed {
  keep(token: string, delivery: Loaded): void
  /** Gives it once. */
  take(token: string | undefined, taskNo: string): OwedOne | undefined
}

/** Where so many are waited for, the next are looked up: to forget the oldest would be to forget the one that comes next. */
const most = 10_000
/** What came not by then, or went to another process, makes room; and no token is good for ever. */
const longMs = 600_000

export function owed(now = () => performance.now()): Owed {
  const kept = new Map<string, OwedOne & { at: number }>()
  let fullUntil = 0
  const isFull = (at: number): boolean => {
    if (kept.size < most) return false
    // Not each time: a map finds its first entry behind all that were deleted before it.
    if (at < fullUntil) return true
    for (const [token, one] of kept) {
      fullUntil = one.at + longMs
      if (at < fullUntil) break
      kept.delete(token)
    }
    return kept.size >= most
  }
  return {
    keep(token, { task, downstream, attempt }) {
      const at = now()
      if (isFull(at)) return
      kept.set(token, {
        taskId: task.id,
        taskNo: task.taskNo,
        messageCode: task.messageCode,
        downstream,
        attempt,
        at
      })
    },
    take(token, taskNo) {
      if (token === undefined) return undefined
      const one = kept.get(token)
      if (!one || one.taskNo !== taskNo || now() - one.at >= longMs) return undefined
      kept.delete(token)
      return one
    }
  }
}
