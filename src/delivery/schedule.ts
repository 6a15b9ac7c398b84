import { claimDue } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import type { Enqueuer } from './enqueue.ts'
import type { Owner } from './lease.ts'
import type { From } from './low-water.ts'

export interface ScheduleDeps {
  sql: Sql
  /** The downstreams with a handler in this process, each with the length of its leases. */
  downstreams: readonly { name: string; leaseMs: number }[]
  enqueuer: Enqueuer
  cluster: Cluster
  owner: Pick<Owner, 'number'>
  log: Logger
}

/** The most deliveries of a downstream that one statement claims. */
const claimedAtOnce = 2_000

/** Claims due deliveries and enqueues them. False: it claimed as many as there was room for, so more may be due. */
export async function claimAndEnqueue(
  { sql, downstreams, enqueuer, cluster, owner, log }: ScheduleDeps,
  from: From
): Promise<boolean> {
  const open = downstreams
    .filter(({ name }) => !cluster.isPaused(name))
    .map(({ name, leaseMs }) => ({
      downstream: name,
      room: Math.min(enqueuer.room(name), claimedAtOnce),
      leaseMs,
      fromMs: from(name)
    }))
  const roomy = open.filter(one => one.room > 0)
  const claimed = roomy.length > 0 ? await claimDue(sql, roomy, owner.number()) : []
  if (claimed.length > 0) {
    failpoint('claim.after_commit')
    log.debug({ deliveries: claimed.length }, 'schedule.claimed')
    void enqueuer.add(claimed)
  }
  const taken = new Map<string, number>()
  for (const { downstream } of claimed) taken.set(downstream, (taken.get(downstream) ?? 0) + 1)
  let all = true
  for (const { downstream, room } of open) {
    // Without room there was no claim. The age of the oldest delivery, read once a second, shows whether deliveries wait.
    if (room === 0) continue
    const full = (taken.get(downstream) ?? 0) >= room
    cluster.setBacklog(downstream, full)
    if (full) all = false
  }
  return all
}

/** Downstreams with more due deliveries than the last sweep claimed. */
export const downstreamsWithBacklog = ({
  downstreams,
  cluster
}: Pick<ScheduleDeps, 'downstreams' | 'cluster'>): string[] =>
  downstreams.map(({ name }) => name).filter(name => cluster.hasBacklog(name) && !cluster.isPaused(name))

/** Due deliveries wait, but their queues are full: a query would be useless now. */
export function areQueuesFull(deps: Pick<ScheduleDeps, 'downstreams' | 'cluster' | 'enqueuer'>): boolean {
  const names = downstreamsWithBacklog(deps)
  return names.length > 0 && names.every(name => deps.enqueuer.room(name) === 0)
}
