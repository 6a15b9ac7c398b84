import type { LoadedDelivery } from '../db/deliveries.ts'
import type { LoadedDownstream } from '../handler/loaded.ts'
import type { Cluster } from './cluster.ts'
import type { DeliveryHeaders } from './headers.ts'
import type { LeasedDelivery } from './load.ts'
import type { Reach } from './reach.ts'

/** This process as the owner of its claims (service/heartbeat.ts). */
export interface Owner {
  /** null: this process has no number now. A claim without a number comes back when its lease ends. */
  number(): number | null
  /** No heartbeat was answered for too long: other processes may declare this one dead at any moment, and send its deliveries. */
  isSilent(): boolean
  /** ms of our monotonic clock. Deliveries claimed or read before this were taken back when the process was declared dead. */
  since(): number
}

/** Reserved at the end of every lease, so that our own record is written before the lease counts as lost. */
const leaseSafetyMs = 1_000

/** A loaded delivery with its handler. By our monotonic clock its lease ends at `expiresAt`, and it is not sent from `forgetAt` on. */
export interface Owned {
  delivery: LoadedDelivery
  downstream: LoadedDownstream
  leasedFrom: number
  expiresAt: number
  deliverBeforeAt: number
  forgetAt: number
}

export function ownedOf(
  { headers }: { headers: DeliveryHeaders },
  loaded: LeasedDelivery | undefined,
  downstream: LoadedDownstream
): Owned | undefined {
  if (!loaded) return undefined
  const { delivery, leasedFrom } = loaded
  return {
    delivery,
    downstream,
    leasedFrom,
    expiresAt: leasedFrom + delivery.leaseLeftMs,
    deliverBeforeAt:
      delivery.deliverBeforeLeftMs === null ? Infinity : leasedFrom + delivery.deliverBeforeLeftMs,
    forgetAt: leasedFrom + headers.forgetMs - delivery.roundMs
  }
}

interface LeaseDeps {
  cluster: Cluster
  owner: Owner
  stopping: AbortSignal
  reach: Pick<Reach, 'isClosed'>
}

/** The time for this attempt, ms. 0: it must not start now. */
export function timeLeft(
  { cluster, owner, stopping, reach }: LeaseDeps,
  { delivery, downstream, leasedFrom, expiresAt, deliverBeforeAt, forgetAt }: Owned
): number {
  const now = performance.now()
  if (
    stopping.aborted ||
    cluster.isPaused(delivery.downstream) ||
    cluster.isDatabaseAway() ||
    owner.isSilent() ||
    leasedFrom < owner.since() ||
    reach.isClosed(delivery.downstream) ||
    now >= Math.min(deliverBeforeAt, forgetAt)
  )
    return 0
  const left = Math.min(downstream.limit.timeoutMs, expiresAt - leaseSafetyMs - now)
  // With less than half of its timeout a healthy downstream would look slow.
  return left < downstream.limit.timeoutMs / 2 ? 0 : left
}
