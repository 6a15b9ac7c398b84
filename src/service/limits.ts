import type { SetLimits } from '../db/cluster.ts'
import type { Registry } from '../handler/load.ts'
import { defined } from '../domain/optional-members.ts'

/** What limits a downstream now. One object each, which all that limit it read. */
export interface LiveLimits {
  name: string
  concurrency: number
  perSecond?: number | undefined
  timeoutMs: number
  pipelining?: number
  leaseMs: number
  /** What a FAILED delivery does to its orderingKey. */
  onFailed?: 'hold' | 'skip'
  share: () => number
}

/** The limits of all downstreams: the handlers', or what an operator has set in their place. `share`: of this process. */
export function liveLimits({ downstreams }: Registry, leaseMarginMs: number, share: () => number) {
  const all = [...downstreams.values()].map((one): LiveLimits => ({
    name: one.name,
    concurrency: one.concurrency,
    perSecond: one.perSecond,
    timeoutMs: one.timeoutMs,
    ...defined({ pipelining: one.pipelining, onFailed: one.onFailed }),
    leaseMs: one.timeoutMs + leaseMarginMs,
    share
  }))
  return {
    all,
    byName: new Map(all.map(one => [one.name, one])),
    /** Operators have set these. What they have not is the handler's. */
    follow(set: ReadonlyMap<string, SetLimits>) {
      for (const one of all) {
        const own = downstreams.get(one.name)
        const { concurrency, perSecond } = set.get(one.name) ?? {}
        one.concurrency = concurrency ?? own?.concurrency ?? one.concurrency
        one.perSecond = perSecond ?? own?.perSecond
      }
    }
  }
}
