import { batcher, isTimeout } from '../db/batch.ts'
import { findPromotions, promote, type OrderingKey, type Promoting } from '../db/ordering.ts'
import { isInfrastructure, type Sql } from '../db/pool.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { roomOf } from './admission.ts'
import type { Cluster } from './cluster.ts'
import type { QueuedClaim, Enqueuer } from './enqueue.ts'
import type { Owner } from './lease.ts'

export interface OrderingDeps {
  sql: Sql
  /** The downstreams with a handler in this process. `onFailed`: the effect of a FAILED delivery on its key. */
  downstreams: readonly { name: string; leaseMs: number; onFailed?: 'hold' | 'skip' | undefined }[]
  enqueuer: Pick<Enqueuer, 'add' | 'room'>
  cluster: Pick<Cluster, 'isPaused' | 'hasBacklog' | 'hasPromotions'>
  owner: Pick<Owner, 'number'>
  claiming: () => boolean
  /** This process is also a worker: it need not read the deliveries that it claims. */
  hasWorker: boolean
  /** Called when a delivery became due. */
  wake: () => void
  metrics: Pick<Metrics, 'moved'>
  log: Logger
}

/**
 * Lets the next delivery of an orderingKey start when the delivery before it has ended. In the transaction that ends a delivery, a
 * trigger of the database (`leave_promotion`, migration 0005) leaves a row in `promotion`. After the commit its process looks at the key,
 * in a separate statement. The sweep finds the keys that a crashed process did not look at.
 */
export interface Ordering {
  /** Deliveries of these keys have ended, or may start for another reason. */
  promote(keys: readonly OrderingKey[]): void
  /** Looks at the keys in `promotion`. */
  sweep(): Promise<void>
  /** Resolves when no key waits for a look. */
  idle(): Promise<void>
}

const lookedAtOnce = 200
const sweptAtOnce = 1_000

export function ordering(deps: OrderingDeps): Ordering {
  const { sql, cluster, log } = deps
  const known = new Map(deps.downstreams.map(one => [one.name, one]))
  const promoting = batcher<OrderingKey, void>({
    max: lookedAtOnce,
    isOfOne: isTimeout,
    async write(keys) {
      await promoteHeads(deps, known, keys)
      return keys.map(() => undefined)
    }
  })
  const failed = (err: unknown, fields: object = {}): void => {
    // The sweep finds these keys.
    if (isTimeout(err)) log.warn({ err, ...fields }, 'ordering.failed')
    else if (isInfrastructure(err)) log.debug({ err, ...fields }, 'ordering.failed')
    else log.error({ err, ...fields }, 'ordering.failed')
  }
  let sweeping = false

  /** False: some could not be looked at. One line in the log names the first of them. */
  async function add(keys: readonly OrderingKey[]): Promise<boolean> {
    const looked = await Promise.allSettled(keys.map(key => promoting.add(key)))
    const failures = looked.flatMap((one, n) => (one.status === 'rejected' ? [{ ...one, ...keys[n] }] : []))
    const [first] = failures
    if (first) {
      const { reason, downstream, orderingKey } = first
      failed(reason, { downstream, orderingKey, keys: failures.length })
    }
    return !first
  }

  async function sweep(): Promise<void> {
    const names = [...known.keys()]
    for (let keys = await findPromotions(sql, names, sweptAtOnce); keys.length > 0;) {
      if (!(await add(keys)) || keys.length < sweptAtOnce) return
      keys = await findPromotions(sql, names, sweptAtOnce)
    }
  }

  return {
    promote(keys) {
      // Other keys are left to the sweep of a process that has their handler.
      void add(keys.filter(({ downstream }) => known.has(downstream)))
    },
    async sweep() {
      if (sweeping || !cluster.hasPromotions()) return
      sweeping = true
      await sweep()
        .catch(failed)
        .finally(() => (sweeping = false))
    },
    idle: () => promoting.idle()
  }
}

async function promoteHeads(
  deps: OrderingDeps,
  known: ReadonlyMap<string, OrderingDeps['downstreams'][number]>,
  requested: readonly OrderingKey[]
): Promise<void> {
  const keys = new Map<string, Promoting>()
  const rooms = new Map<string, number>()
  for (const { downstream, orderingKey } of requested) {
    const name = `${downstream} ${orderingKey}`
    if (keys.has(name)) continue
    const one = known.get(downstream)
    const room = rooms.get(downstream) ?? roomOf(deps, downstream)
    rooms.set(downstream, room - 1)
    keys.set(name, {
      downstream,
      orderingKey,
      leaseMs: one && room > 0 ? one.leaseMs : null,
      skips: one?.onFailed === 'skip'
    })
  }
  failpoint('promote.before')
  const leasedFrom = performance.now()
  const promoted = await promote(deps.sql, [...keys.values()], deps.hasWorker, deps.owner.number())
  failpoint('promote.after_commit')
  const claimed = promoted.flatMap(({ phase, loaded, ...claim }): QueuedClaim[] =>
    phase === 'IN_FLIGHT'
      ? [{ ...claim, ...(loaded && { leased: { delivery: loaded, leasedFrom, isOwnClaim: true } }) }]
      : []
  )
  const waiting = promoted.length - claimed.length
  deps.metrics.moved('promote', true, claimed.length)
  deps.metrics.moved('unblock', true, waiting)
  if (claimed.length > 0) void deps.enqueuer.add(claimed)
  if (waiting > 0) deps.wake()
}
