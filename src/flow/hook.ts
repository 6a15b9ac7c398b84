import { isThenable } from '../task/thenable.ts'

/** The longest a handler's hook may take. */
const hookMs = 5_000
/** A year, as for a start time. */
const longestMs = 365 * 24 * 3_600_000

/** What a hook returned, or a rejection after 5 s: a hook that hangs fails its own attempt and nothing else. */
export function within<T>(name: string, returned: T | PromiseLike<T>): T | Promise<T> {
  return isThenable(returned) ? inTime(name, returned) : returned
}

async function inTime<T>(name: string, returned: PromiseLike<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${name} took longer than ${hookMs} ms`)), hookMs)
  })
  try {
    return await Promise.race([returned, tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** What a hook threw, short enough for a reason. */
export const messageOf = (err: unknown): string =>
  (err instanceof Error ? err.message : String(err)).slice(0, 200)

/** From JavaScript anything may come; PostgreSQL would refuse it, and the delivery stand still until its lease ran out. */
export function postponed(ms: number): number {
  if (!Number.isFinite(ms)) throw new TypeError(`beforeSend asks for postponeMs: ${String(ms)}`)
  return Math.min(Math.max(0, ms), longestMs)
}
