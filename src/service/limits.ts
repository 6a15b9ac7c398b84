import type { SetLimits } from '../db/cluster.ts'
import type { Registry } from '../handler/load.ts'
import { defined } from '../domain/optional-members.ts'

/** The current limits of a downstream. All readers share one object for each, which `follow` changes. */
export interface LiveLimits {
  name: string
  concurrency: number
  perSecond?: number | undefined
  timeoutMs: number
  pipelining?: number
  leaseMs: number
  /** The effect of a FAILED delivery on its orderingKey. */
  onFailed?: 'hold' | 'skip'
  share: () => number
}

/** The limits of all downstreams, from the handlers or set by an operator. `share`: the share of this process. */
export function liveLimits({ downstreams }: Registry, leaseMarginMs: number, share: () => number) {
  const all = [...downstreams.values()].map((own): LiveLimits => ({
    name: own.name,
    concurrency: own.concurrency,
    perSecond: own.perSecond,
    timeoutMs: own.timeoutMs,
    ...defined({ pipelining: own.pipelining, onFailed: own.onFailed }),
    leaseMs: own.timeoutMs + leaseMarginMs,
    share
  }))
  return {
    all,
    byName: new Map(all.map(live => [live.name, live])),
    /** Applies the limits that operators have set. The others are those of the handlers. */
    follow(set: ReadonlyMap<string, SetLimits>) {
      for (const live of all) {
        const own = downstreams.get(live.name)
        const { concurrency, perSecond } = set.get(live.name) ?? {}
        live.concurrency = concurrency ?? own?.concurrency ?? live.concurrency
        live.perSecond = perSecond ?? own?.perSecond
      }
    }
  }
}
