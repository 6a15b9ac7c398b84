import { Gauge, type Registry } from 'prom-client'

/** Deliveries of a downstream in these states: `failed` is counted up to 10,001, the other two up to 20,000. */
export interface DeliveryCounts {
  name: string
  failed: number
  blocked: number
  awaitingReceipt: number
}

/**
 * The current state of the tables and queues, not counts of events. Dispatchers report most of it; a process without that role has no
 * sample. `names` are the downstreams of handlers; empty: all downstreams.
 */
export function deliveryGauges(registers: Registry[], names: ReadonlySet<string>) {
  const gauge = (name: string, help: string) => new Gauge({ name, help, registers })
  // Without labels a gauge is 0 from the start: a process that never sets it would say that nothing waits.
  const ofDispatchers = (name: string, help: string) => {
    const unset = gauge(name, help)
    unset.remove()
    return unset
  }
  const ofDownstream = (name: string, help: string) =>
    new Gauge({ name, help, labelNames: ['downstream'] as const, registers })
  const failedNow = ofDownstream(
    'ackbox_deliveries_failed',
    'FAILED deliveries, counted up to 10,001. Reported by dispatchers'
  )
  const blockedNow = ofDownstream(
    'ackbox_deliveries_blocked',
    'BLOCKED deliveries, which wait for other tasks; counted up to 20,000. Reported by dispatchers'
  )
  const awaitingNow = ofDownstream(
    'ackbox_deliveries_awaiting_receipt',
    'Deliveries that wait for their receipt; counted up to 20,000. Reported by dispatchers'
  )
  const waiting = ofDownstream('ackbox_queue_waiting', 'Deliveries that wait in the queue')
  const oldestDue = ofDownstream(
    'ackbox_oldest_due_seconds',
    'Age of the oldest delivery that is due: to be sent, or to be decided because its worker or its receipt is late'
  )
  const outboxWaiting = ofDispatchers(
    'ackbox_outbox_waiting',
    'Rows in the outbox, counted up to 100,000. Reported by dispatchers'
  )
  const outboxOldest = ofDispatchers(
    'ackbox_outbox_oldest_seconds',
    'Age of the oldest row in the outbox. Reported by dispatchers'
  )
  const outboxRejected = ofDispatchers(
    'ackbox_outbox_rejected',
    'Rejected outbox rows that nobody has retried or deleted. Reported by dispatchers'
  )
  const prepared = ofDispatchers(
    'ackbox_prepared_tasks',
    'Tasks that are PREPARED: neither committed nor rolled back'
  )
  const oldestPrepared = ofDispatchers(
    'ackbox_prepared_oldest_seconds',
    'Age of the oldest task that is PREPARED'
  )
  const heldKeys = gauge('ackbox_held_keys', 'Ordering keys held by a FAILED delivery, counted up to 10,000')
  const nodes = new Gauge({
    name: 'ackbox_nodes',
    help: 'Processes with this role that were seen in the last 15 s. Each process reports all',
    labelNames: ['role'] as const,
    registers
  })

  return {
    nodes(live: { workers: number; dispatchers: number }) {
      nodes.set({ role: 'worker' }, live.workers)
      nodes.set({ role: 'dispatcher' }, live.dispatchers)
    },
    /** Downstreams that no handler names have no series. */
    countDeliveries(counted: readonly DeliveryCounts[]) {
      for (const { name: downstream, failed, blocked, awaitingReceipt } of counted) {
        if (names.size > 0 && !names.has(downstream)) continue
        failedNow.set({ downstream }, failed)
        blockedNow.set({ downstream }, blocked)
        awaitingNow.set({ downstream }, awaitingReceipt)
      }
    },
    queued(downstream: string, deliveries: number) {
      waiting.set({ downstream }, deliveries)
    },
    oldestDue(downstream: string, ageMs: number) {
      oldestDue.set({ downstream }, Math.max(0, ageMs) / 1000)
    },
    heldKeys(keys: number) {
      heldKeys.set(keys)
    },
    outbox({ waiting: rows, oldestMs, rejected }: { waiting: number; oldestMs: number; rejected: number }) {
      outboxWaiting.set(rows)
      outboxOldest.set(Math.max(0, oldestMs) / 1000)
      outboxRejected.set(rejected)
    },
    prepared(tasks: number, oldestMs: number) {
      prepared.set(tasks)
      oldestPrepared.set(oldestMs / 1000)
    }
  }
}
