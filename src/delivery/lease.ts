import type { LoadedDelivery } from '../db/deliveries.ts'
import type { Cluster } from './cluster.ts'
import type { DeliveryHeaders } from './headers.ts'
import type { Reach } from './reach.ts'

/** A claimed delivery with its task, as a worker's SELECT reads it or as this process has just committed it. */
export interface LeasedDelivery {
  delivery: LoadedDelivery
  /** Start of its lease: before the statement that wrote or read it, ms of our monotonic clock. */
  leasedFrom: number
  /** This process claimed it itself, when it accepted the task or when its turn came, and has not read it back. */
  isOwnClaim: boolean
}

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

/** The lease without which no send begins: with less than half of its timeout a healthy downstream would look slow. ms. */
export const leastLeaseMs = (timeoutMs: number): number => timeoutMs / 2 + leaseSafetyMs

/** The end of the lease, ms of our monotonic clock. */
const expiresAt = ({ delivery, leasedFrom }: LeasedDelivery): number => leasedFrom + delivery.leaseLeftMs

/** From then on the downstream may have forgotten the delivery id. ms of our monotonic clock. */
export const forgetAt = (
  { forgetMs }: Pick<DeliveryHeaders, 'forgetMs'>,
  { delivery, leasedFrom }: LeasedDelivery
): number => leasedFrom + forgetMs - delivery.roundMs

export interface LeaseDeps {
  cluster: Cluster
  owner: Owner
  stopping: AbortSignal
  reach: Pick<Reach, 'isSuspended'>
  headers: Pick<DeliveryHeaders, 'forgetMs'>
}

/** The time for an attempt of at most `timeoutMs`, ms. 0: it must not start now. */
export function timeLeft(
  { cluster, owner, stopping, reach, headers }: LeaseDeps,
  leased: LeasedDelivery,
  timeoutMs: number
): number {
  const { delivery, leasedFrom } = leased
  const now = performance.now()
  const deliverBeforeAt = leasedFrom + (delivery.deliverBeforeLeftMs ?? Infinity)
  if (
    stopping.aborted ||
    cluster.isPaused(delivery.downstream) ||
    cluster.isDatabaseAway() ||
    owner.isSilent() ||
    leasedFrom < owner.since() ||
    reach.isSuspended(delivery.downstream) ||
    now >= Math.min(deliverBeforeAt, forgetAt(headers, leased))
  )
    return 0
  const leaseMs = expiresAt(leased) - now
  return leaseMs < leastLeaseMs(timeoutMs) ? 0 : Math.min(timeoutMs, leaseMs - leaseSafetyMs)
}
