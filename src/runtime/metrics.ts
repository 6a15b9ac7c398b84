import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { CheckAnswer } from '../domain/types.ts'

export type Metrics = ReturnType<typeof createMetrics>

/**
 * The numbers of this process, in the words of the glossary. Labels are only names that handlers declare or our own words, never
 * values of a caller, so that nobody can create more series.
 */
export function createMetrics({ processMetrics = true } = {}) {
  const registry = new Registry()
  const registers = [registry]
  if (processMetrics) collectDefaultMetrics({ register: registry })

  const accepts = new Counter({
    name: 'ackbox_accepts_total',
    help: 'Tasks posted, by what they came to: created, same, conflict, refused',
    labelNames: ['message_code', 'kind'],
    registers
  })
  const attempts = new Counter({
    name: 'ackbox_attempts_total',
    help: 'Attempts that ended, by outcome',
    labelNames: ['downstream', 'outcome'],
    registers
  })
  const attemptTime = new Histogram({
    name: 'ackbox_attempt_seconds',
    help: 'How long attempts took',
    labelNames: ['downstream'],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 60],
    registers
  })
  const receipts = new Counter({
    name: 'ackbox_receipts_total',
    help: 'Receipts with a valid token, by result and whether they changed anything',
    labelNames: ['result', 'applied'],
    registers
  })
  const moves = new Counter({
    name: 'ackbox_moves_total',
    help: 'Moves of deliveries, by name; written="false" means somebody was faster',
    labelNames: ['move', 'written'],
    registers
  })
  const ended = new Counter({
    name: 'ackbox_deliveries_ended_total',
    help: 'Deliveries that this process brought to an end, by status and reason',
    labelNames: ['downstream', 'status', 'reason'],
    registers
  })
  const lag = new Histogram({
    name: 'ackbox_queue_lag_seconds',
    help: 'From the claim of a delivery to the start of its attempt',
    labelNames: ['downstream'],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 30],
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
  const drained = new Counter({
    name: 'ackbox_outbox_rows_total',
    help: 'Rows of the outbox that this process brought to their end: stored, same, rejected',
    labelNames: ['result'],
    registers
  })
  const outboxWaiting = new Gauge({
    name: 'ackbox_outbox_waiting',
    help: 'Rows in the outbox; of more than 100,000 only so many are counted. Told by dispatchers',
    registers
  })
  const outboxOldest = new Gauge({
    name: 'ackbox_outbox_oldest_seconds',
    help: 'Age of the oldest row in the outbox. Told by dispatchers',
    registers
  })
  const outboxRejected = new Gauge({
    name: 'ackbox_outbox_rejected',
    help: 'Rows of the outbox that were rejected and wait for somebody. Told by dispatchers',
    registers
  })
  const checks = new Counter({
    name: 'ackbox_checks_total',
    help: 'Producers asked about a half message, by answer',
    labelNames: ['message_code', 'answer'],
    registers
  })
  const halves = new Counter({
    name: 'ackbox_prepared_ended_total',
    help: 'Half messages that this process ended, by state and by whose word: producer, check',
    labelNames: ['message_code', 'state', 'by'],
    registers
  })
  // Told by dispatchers only: of a process without that role there is no sample.
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
  let handled = 0
  let direct = 0
  let failed = 0
  ratio(
    registers,
    'ackbox_direct_success_ratio',
    'Of the deliveries HANDLED here since the start: those handled with the first attempt',
    () => direct / handled
  )
  ratio(
    registers,
    'ackbox_failed_after_retries_ratio',
    'Of the deliveries ended here since the start: those FAILED at their retry limit',
    () => failed / (handled + failed)
  )

  return {
    accepted(messageCode: string, kind: 'created' | 'same' | 'conflict' | 'refused', n = 1) {
      accepts.inc({ message_code: messageCode, kind }, n)
    },
    attempted(downstream: string, outcome: 'delivered' | 'refused' | 'failed', ms: number) {
      attempts.inc({ downstream, outcome })
      attemptTime.observe({ downstream }, ms / 1000)
    },
    received(result: string, applied: boolean) {
      receipts.inc({ result, applied: String(applied) })
    },
    moved(move: string, written: boolean, n = 1) {
      if (n > 0) moves.inc({ move, written: String(written) }, n)
    },
    /** A delivery ended. `attempt` is its number: it gives the share of first-attempt successes. */
    ended(downstream: string, status: 'HANDLED' | 'FAILED' | 'DELETED', attempt: number, reason = '') {
      ended.inc({ downstream, status, reason })
      if (status === 'HANDLED') {
        handled++
        if (attempt === 1) direct++
      } else if (reason === 'SEND_EXHAUSTED' || reason === 'RECEIPT_TIMEOUT' || reason === 'RECEIPT_FAILED')
        failed++
    },
    started(downstream: string, lagMs: number) {
      lag.observe({ downstream }, lagMs / 1000)
    },
    waiting(downstream: string, deliveries: number) {
      waiting.set({ downstream }, deliveries)
    },
    oldestDue(downstream: string, ageMs: number) {
      oldestDue.set({ downstream }, Math.max(0, ageMs) / 1000)
    },
    drained(result: 'stored' | 'same' | 'rejected', n: number) {
      if (n > 0) drained.inc({ result }, n)
    },
    outbox({ waiting: rows, oldestMs, rejected }: { waiting: number; oldestMs: number; rejected: number }) {
      outboxWaiting.set(rows)
      outboxOldest.set(Math.max(0, oldestMs) / 1000)
      outboxRejected.set(rejected)
    },
    checked(messageCode: string, answer: CheckAnswer) {
      checks.inc({ message_code: messageCode, answer })
    },
    halfEnded(messageCode: string, state: 'COMMITTED' | 'ROLLED_BACK', by: 'producer' | 'check') {
      halves.inc({ message_code: messageCode, state, by })
    },
    prepared(tasks: number, oldestMs: number) {
      prepared.set(tasks)
      oldestPrepared.set(oldestMs / 1000)
    },
    contentType: registry.contentType,
    render: () => registry.metrics()
  }
}

/** 0/0 would print NaN and spoil every average made of it: before the first delivery there is no sample at all. */
function ratio(registers: Registry[], name: string, help: string, value: () => number) {
  return new Gauge({
    name,
    help,
    registers,
    collect() {
      const now = value()
      if (Number.isFinite(now)) this.set(now)
      else this.remove()
    }
  })
}
