import { raiseOutboxStuck, resolveOutboxStuck } from '../db/outbox-alarm.ts'
import type { Sql } from '../db/pool.ts'
import { reasonOf } from '../runtime/errors.ts'

/** Looks may fail for this long, and the oldest row must have waited for it. */
const stuckMs = 60_000

/** Is the outbox stuck? Its alarm is raised after a minute, and resolved when the looks succeed. */
export function outboxHealth({ sql, now = () => performance.now() }: { sql: Sql; now?: () => number }) {
  let failing: { since: number; reason: string } | undefined
  let isStuck = false
  /** An earlier process may have raised it. */
  let mayBeRaised = true
  return {
    /** The error of a look, or undefined after a look that read all of its rows. */
    saw(fault: unknown): void {
      failing = fault === undefined ? undefined : { since: failing?.since ?? now(), reason: reasonOf(fault) }
    },
    /** `oldestMs`: the age of the oldest row. */
    async report(oldestMs: number): Promise<void> {
      isStuck = failing !== undefined && Math.min(now() - failing.since, oldestMs) >= stuckMs
      if (isStuck && failing) {
        mayBeRaised = true
        await raiseOutboxStuck(sql, failing.reason)
      } else if (!failing && mayBeRaised) {
        await resolveOutboxStuck(sql)
        mayBeRaised = false
      }
    },
    state: (): 'ok' | 'stuck' => (isStuck ? 'stuck' : 'ok')
  }
}
