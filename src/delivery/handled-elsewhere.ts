import { handledByOthers } from '../db/cluster.ts'
import type { Sql } from '../db/pool.ts'
import { Unavailable } from '../runtime/errors.ts'
import type { Cluster } from './cluster.ts'
import { orUnavailable } from './unavailable.ts'

/** The messageCodes that other live processes with an API have a handler for. Throws Unavailable without the database. */
export type HandledElsewhere = () => Promise<ReadonlySet<string>>

/** An answer is used this long: a flood of unknown messageCodes costs one statement in this time. */
const usedMs = 1_000

export function handledElsewhere(deps: {
  sql: Sql
  node: string
  cluster: Pick<Cluster, 'isDatabaseAway' | 'setDatabaseAway'>
}): HandledElsewhere {
  const { sql, node, cluster } = deps
  let asked = { codes: Promise.resolve<ReadonlySet<string>>(new Set()), until: -Infinity }
  return async () => {
    if (cluster.isDatabaseAway()) throw new Unavailable()
    if (asked.until <= performance.now()) {
      const now = { codes: handledByOthers(sql, node, 'api'), until: Infinity }
      const ended = (ms: number) => () => void (now.until = performance.now() + ms)
      now.codes.then(ended(usedMs), ended(0))
      asked = now
    }
    return orUnavailable(cluster, asked.codes)
  }
}
