// Checks the daily partitions of attempts and receipts: enough must exist ahead, and old ones must be droppable.
import {
  lockHoldersOf,
  dayMs,
  daysAhead,
  gapsOf,
  listPartitions,
  oldestYoung,
  partitioned,
  type LockHolder
} from '../../db/partitions.ts'
import type { Sql } from '../../db/pool.ts'
import { timeOf } from '../../domain/ids.ts'

export interface PartitionFacts {
  /** The number of whole days from now for which both tables have partitions. */
  daysAhead: number
  /** Sessions that block the drop of old partitions. */
  blockedBy: LockHolder[]
}

/** Undefined before the migration of the partitions. */
export async function lookAtPartitions(sql: Sql, retentionDays: number): Promise<PartitionFacts | undefined> {
  const [made] = await sql<[{ there: boolean }]>`
    select to_regprocedure('partitions_of(text)') is not null as there`
  if (!made.there) return undefined
  const [partitions, oldest] = [await listPartitions(sql), await oldestYoung(sql, retentionDays)]
  const now = Date.now()
  const ends = partitioned.map(parent => {
    const [gap] = gapsOf(partitions, parent, now, now + (daysAhead + 2) * dayMs)
    return gap === undefined ? daysAhead : Math.floor((timeOf(gap).getTime() - now) / dayMs)
  })
  const holders = new Map<number, LockHolder>()
  for (const one of partitions.filter(({ high }) => high <= oldest))
    for (const holder of await lockHoldersOf(sql, one)) holders.set(holder.pid, holder)
  return {
    daysAhead: Math.min(...ends),
    blockedBy: [...holders.values()]
  }
}

export function judgePartitions(facts: PartitionFacts | undefined): {
  level: 'ok' | 'warn'
  found: string
  remedy?: string
} {
  if (facts === undefined) return { level: 'ok', found: 'no tables yet' }
  const { daysAhead, blockedBy } = facts
  const [first] = blockedBy
  if (daysAhead < 2)
    return {
      level: 'warn',
      found: `attempts and receipts have partitions for ${Math.max(0, daysAhead)} days ahead`,
      remedy: 'start a process with ROLE=dispatcher; if one runs, look for retention.failed in its log'
    }
  if (first)
    return {
      level: 'warn',
      found: `old days cannot be dropped: pid ${first.pid} (${first.application}) has had their table open for ${first.seconds ?? 'more than 1'} s`,
      remedy: `select pg_terminate_backend(${first.pid})`
    }
  return { level: 'ok', found: `created for ${daysAhead} days ahead` }
}
