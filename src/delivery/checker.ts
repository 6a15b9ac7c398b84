import { claimChecks, countPrepared } from '../db/prepared.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { waitGroup } from '../runtime/semaphore.ts'
import { check, checkLeaseMs, type HalfDeps } from './half.ts'

export interface CheckerDeps extends HalfDeps {
  metrics: HalfDeps['metrics'] & Pick<Metrics, 'prepared'>
}

export interface Checker {
  /** One look: asks the producers of what is due. ms until the next look. */
  look(): Promise<number>
  /** Resolves when nobody is being asked. */
  idle(): Promise<void>
}

const lookMs = 1_000
/** After a look that had to leave something behind. */
const soonMs = 100
const countMs = 10_000
/** Producers asked at once by this process, and of one messageCode: one that hangs must not hold up the others. */
const most = 128
export const mostOfOne = 16
/** Checks of messageCodes without a handler: they get no answer, but their clock goes on. */
const orphans = 16

/** Asks the producers of half messages that are still PREPARED. It needs no leader: a claim is a lease. */
export function checker(deps: CheckerDeps): Checker {
  const codes = [...deps.handlers.values()].filter(one => one.checkBack).map(one => one.messageCode)
  const busy = waitGroup()
  const asking = new Map<string, number>()
  let all = 0
  let countAt = 0

  const rooms = () => {
    // Another messageCode first each time: while there is not enough room for all, the first ones would take it.
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
      // Codes without room are not among the orphans.
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
        // After an exception the lease runs out, and the producer is asked again.
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
