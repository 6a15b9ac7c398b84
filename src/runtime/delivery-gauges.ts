import { Gauge, type Registry } from 'prom-client'

/** How many deliveries stand so. Of more than 10,000 only 10,001 are counted. */
export interface DeliveryCounts {
  name: string
  failed: number
  blocked: number
  awaitingReceipt: number
}

/**
 * How things stand in the tables and queues, not what happened: most of it told by dispatchers. Of a process without that role there is
 * no sample. `names` are the downstreams of handlers; empty: of all.
 */
export function deliveryGauges(registers: Registry[], names: ReadonlySet<string>) {
  const failedNow = new Gauge({
    name: 'ackbox_deliveries_failed',
    help: 'FAILED deliveries, counted up to 10,001. Reported by dispatchers',
    labelNames: ['downstream'],
    registers
  })
  const heldNow = new Gauge({
    name: 'ackbox_deliveries_held',
    help: 'BLOCKED deliveries, which wait for other tasks; counted up to 20,000. Reported by dispatchers',
    labelNames: ['downstream'],
    registers
  })
  const awaitingNow = new Gauge({
    name: 'ackbox_deliveries_awaiting_receipt',
    help: 'Deliveries that wait for their receipt; counted up to 20,000. Reported by dispatchers',
    labelNames: ['downstream'],
    registers
  })
  const waiting = new Gauge({
    name: 'ackbox_queue_waiting',
    help: 'Deliveries that wait in the queue',
    labelNames: ['downstream'],
    registers
  })
  const oldestDue = new Gauge({
    name: 'ackbox_oldest_due_seconds',
    help: 'Age of the oldest delivery that is due and not claimed',
    labelNames: ['downstream'],
    registers
  })
  const outboxWaiting = new Gauge({
    name: 'ackbox_outbox_waiting',
    help: 'Rows in the outbox, counted up to 100,000. Reported by dispatchers',
    registers
  })
  const outboxOldest = new Gauge({
    name: 'ackbox_outbox_oldest_seconds',
    help: 'Age of the oldest row in the outbox. Reported by dispatchers',
    registers
  })
  const outboxRejected = new Gauge({
    name: 'ackbox_outbox_rejected',
    help: 'Rejected outbox rows that nobody has retried or deleted. Reported by dispatchers',
    registers
  })
  const prepared = new Gauge({
    name: 'ackbox_prepared_tasks',
    help: 'Tasks that are PREPARED: neither committed nor rolled back',
    registers
  })
  const oldestPrepared = new Gauge({
    name: 'ackbox_prepared_oldest_seconds',
    help: 'Age of the oldest task that is PREPARED',
    registers
  })
  prepared.remove()
  oldestPrepared.remove()
  const heldKeys = new Gauge({
    name: 'ackbox_held_keys',
    help: 'Ordering keys held by a FAILED delivery, counted up to 10,000',
    registers
  })

  return {
    /** Downstreams that no handler names have no series. */
    countDeliveries(counted: readonly DeliveryCounts[]) {
      for (const { name: downstream, failed, blocked, awaitingReceipt } of counted) {
        if (names.size > 0 && !names.has(downstream)) continue
        failedNow.set({ downstream }, failed)
        heldNow.set({ downstream }, blocked)
        awaitingNow.set({ downstream }, awaitingReceipt)
      }
    },
    waiting(downstream: string, deliveries: number) {
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
