import { claimChecks, countPrepared } from '../db/prepared.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { waitGroup } from '../runtime/semaphore.ts'
import { check, checkLeaseMs, type HalfDeps } from './half.ts'

export interface CheckerDeps extends HalfDeps {
  metrics: HalfDeps['metrics'] & Pick<Metrics, 'prepared'>
}

export interface Checker {
  /** One look: starts the due checks. Returns the ms until the next look. */
  look(): Promise<number>
  /** Resolves when no check is running. */
  idle(): Promise<void>
}

const lookMs = 1_000
/** After a look that may have left due checks. */
const soonMs = 100
const countMs = 10_000
/** Checks at a time in this process, and of one messageCode: a producer that hangs must not delay the others. */
const most = 128
export const mostOfOne = 16
/** Checks of messageCodes without a handler: they get no answer, but their clock advances. */
const orphans = 16

/** Checks half messages that are still PREPARED. It needs no leader: a claim is a lease. */
export function checker(deps: CheckerDeps): Checker {
  const codes = [...deps.handlers.values()].filter(one => one.checkBack).map(one => one.messageCode)
  const busy = waitGroup()
  const asking = new Map<string, number>()
  let all = 0
  let countAt = 0

  const rooms = () => {
    // Each look begins with another messageCode. Otherwise the first ones would take all the room when it is short.
    codes.push(...codes.splice(0, 1))
    return codes.flatMap(messageCode => {
      const room = Math.min(mostOfOne - (asking.get(messageCode) ?? 0), most - all)
      return room > 0 ? [{ messageCode, room }] : []
    })
  }
  const count = (messageCode: string, n: 1 | -1): void => {
    all += n
    asking.set(messageCode, (asking.get(messageCode) ?? 0) + n)
  }

  return {
    idle: busy.idle,
    async look() {
      if (performance.now() >= countAt) {
        countAt = performance.now() + countMs
        const { count, oldestMs } = await countPrepared(deps.sql)
        deps.metrics.prepared(count, oldestMs)
      }
      const open = rooms()
      // All `codes`: a messageCode without room is not an orphan.
      const claimed = await claimChecks(deps.sql, open, {
        codes,
        room: most - all,
        orphans,
        leaseMs: checkLeaseMs(deps)
      })
      for (const claim of claimed) {
        const { taskNo, messageCode } = claim.task
        busy.enter()
        count(messageCode, 1)
        // After an exception the lease ends, and the check is claimed again.
        void check(deps, claim)
          .catch((err: unknown) => deps.log.warn({ err, taskNo }, 'check.failed'))
          .finally(() => {
            count(messageCode, -1)
            busy.leave()
          })
      }
      return all >= most || open.length < codes.length || claimed.length >= mostOfOne ? soonMs : lookMs
    }
  }
}
