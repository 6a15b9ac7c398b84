import { setTimeout as sleep } from 'node:timers/promises'

/** Waits for `work`, but no longer than `ms`; what it comes to does not matter any more. */
export async function within(ms: number, work: Promise<unknown>): Promise<void> {
  const timeout = new AbortController()
  await Promise.race([work.catch(() => {}), sleep(ms, undefined, { signal: timeout.signal }).catch(() => {})])
  timeout.abort()
}
