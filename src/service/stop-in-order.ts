import type { Logger } from '../runtime/logger.ts'

/** A part of a process, and how it ends. */
export type Ending = readonly [part: string, end: () => unknown]

/** Ends the parts one after the other. One that fails is logged, and the rest end too. Rejects after all with the first error. */
export async function stopInOrder(log: Pick<Logger, 'error'>, parts: readonly Ending[]): Promise<void> {
  const failed: unknown[] = []
  for (const [part, end] of parts) {
    try {
      await end()
    } catch (err) {
      log.error({ err, part }, 'stop.failed')
      failed.push(err)
    }
  }
  if (failed.length > 0) throw new Error('a part of the process did not stop', { cause: failed[0] })
}

/** Resolves when all have ended. Rejects then with the first error. */
export async function allEnded(works: Iterable<unknown>): Promise<void> {
  const ends = await Promise.allSettled(works)
  const failed = ends.find(one => one.status === 'rejected')
  if (failed) throw failed.reason
}

/** Time for the last writes, after the limit of a stop. */
const finalWriteMs = 3_000

/**
 * At the limit no job is taken and sends are cut off. Outcomes that PostgreSQL does not accept soon after are left to the leases.
 * Returns a function that clears the limit.
 */
export function stopLimit(
  stopMs: number,
  atOnce: readonly AbortController[],
  giveUp: AbortController
): () => void {
  let finalWrite: NodeJS.Timeout | undefined
  const limit = setTimeout(() => {
    for (const one of atOnce) one.abort()
    finalWrite = setTimeout(() => giveUp.abort(), finalWriteMs)
  }, stopMs)
  return () => {
    clearTimeout(limit)
    clearTimeout(finalWrite)
  }
}
