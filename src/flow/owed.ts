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
  /** Without a token no receipt is owed, and nothing is kept. */
  keep(token: string | undefined, delivery: Loaded): void
  /** Gives it once. */
  take(token: string | undefined, taskNo: string): OwedOne | undefined
}

/** Of each of two generations: receipts that never come, or go to another process, leave theirs behind, and the elder goes as a whole. */
const most = 8_000
/** No token is good for ever. */
const longMs = 3_600_000

export function owed(now = () => performance.now()): Owed {
  // Each in a box that is emptied when it goes, as in fresh.ts.
  let young = new Map<string, { one: (OwedOne & { at: number }) | undefined }>()
  let elder: typeof young = new Map()
  return {
    keep(token, { task, downstream, attempt }) {
      if (token === undefined) return
      if (young.size >= most) {
        elder = young
        young = new Map()
      }
      const { id: taskId, taskNo, messageCode } = task
      young.set(token, { one: { taskId, taskNo, messageCode, downstream, attempt, at: now() } })
    },
    take(token, taskNo) {
      if (token === undefined) return undefined
      const box = young.get(token) ?? elder.get(token)
      const one = box?.one
      if (!box || !one || one.taskNo !== taskNo || now() - one.at >= longMs) return undefined
      box.one = undefined
      if (!young.delete(token)) elder.delete(token)
      return one
    }
  }
}
