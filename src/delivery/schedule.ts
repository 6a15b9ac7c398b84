import { claimDue } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import type { Enqueuer } from './enqueue.ts'

export interface ScheduleDeps {
  sql: Sql
  /** The downstreams this process has handlers for, each with the length of its leases. */
  downstreams: readonly { name: string; leaseMs: number }[]
  enqueuer: Enqueuer
  cluster: Cluster
  log: Logger
}

/** The most that one statement claims of a downstream. */
const claimedAtOnce = 2_000

/** Claims due deliveries and enqueues them. False: more was due than was claimed, and there is room for it now. */
export async function claimAndEnqueue({
  sql,
  downstreams,
  enqueuer,
  cluster,
  log
}: ScheduleDeps): Promise<boolean> {
  const open = downstreams
    .filter(({ name }) => !cluster.isPaused(name))
    .map(({ name, leaseMs }) => ({
      downstream: name,
      room: Math.min(enqueuer.room(name), claimedAtOnce),
      leaseMs
    }))
  const roomy = open.filter(one => one.room > 0)
  const claimed = roomy.length > 0 ? await claimDue(sql, roomy) : []
  if (claimed.length > 0) {
    failpoint('claim.after_commit')
    log.debug({ deliveries: claimed.length }, 'schedule.claimed')
    void enqueuer.add(claimed)
  }
  const taken = new Map<string, number>()
  for (const { downstream } of claimed) taken.set(downstream, (taken.get(downstream) ?? 0) + 1)
  let all = true
  for (const { downstream, room } of open) {
    // Without room nobody looked: what waits shows itself in the age of the oldest, once a second.
    if (room === 0) continue
    const full = (taken.get(downstream) ?? 0) >= room
    cluster.setBehind(downstream, full)
    if (full) all = false
  }
  return all
}

/** Downstreams with more due than the last look claimed. */
export const downstreamsBehind = ({
  downstreams,
  cluster
}: Pick<ScheduleDeps, 'downstreams' | 'cluster'>): string[] =>
  downstreams.map(({ name }) => name).filter(name => cluster.isBehind(name) && !cluster.isPaused(name))

/** Due deliveries wait, and none of their queues has room: nothing to ask PostgreSQL for yet. */
export function isBlocked(deps: Pick<ScheduleDeps, 'downstreams' | 'cluster' | 'enqueuer'>): boolean {
  const names = downstreamsBehind(deps)
  return names.length > 0 && names.every(name => deps.enqueuer.room(name) === 0)
}
