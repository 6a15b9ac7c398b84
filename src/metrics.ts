import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'

export type Metrics = ReturnType<typeof createMetrics>

/**
 * What this process saw, in the words of the glossary. Labels are only ever names that handlers declare or words of
 * our own, never something a caller chose, so that nobody can grow the number of series.
 */
export function createMetrics({ processMetrics = true } = {}) {
  const registry = new Registry()
  const registers = [registry]
  if (processMetrics) collectDefaultMetrics({ register: registry })

  const accepts = counter(
    registers,
    'ackbox_accepts_total',
    'Tasks posted, by what they came to: created, same, conflict, refused',
    ['message_code', 'kind']
  )
  const attempts = counter(registers, 'ackbox_attempts_total', 'Attempts that ended, by outcome', [
    'downstream',
    'outcome'
  ])
  const attemptTime = new Histogram({
    name: 'ackbox_attempt_seconds',
    help: 'How long attempts took',
    labelNames: ['downstream'],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 60],
    registers
  })
  const receipts = counter(
    registers,
    'ackbox_receipts_total',
    'Receipts with a valid token, by result and whether they changed anything',
    ['result', 'applied']
  )
  const moves = counter(
    registers,
    'ackbox_moves_total',
    'Moves of deliveries, by name; written="false" means somebody was faster',
    ['move', 'written']
  )
  const ended = counter(
    registers,
    'ackbox_deliveries_ended_total',
    'Deliveries that this process brought to an end, by status and reason',
    ['downstream', 'status', 'reason']
  )
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
      accepts([messageCode, kind], n)
    },
    attempted(downstream: string, outcome: 'delivered' | 'refused' | 'failed', ms: number) {
      attempts([downstream, outcome])
      attemptTime.observe({ downstream }, ms / 1000)
    },
    received(result: string, applied: boolean) {
      receipts([result, String(applied)])
    },
    moved(move: string, written: boolean, n = 1) {
      if (n > 0) moves([move, String(written)], n)
    },
    /** A delivery reached its end. `attempt`: its number, so that the share of direct successes can be told. */
    ended(downstream: string, status: 'HANDLED' | 'FAILED' | 'DELETED', attempt: number, reason = '') {
      ended([downstream, status, reason])
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
    contentType: registry.contentType,
    render: () => registry.metrics()
  }
}

/** What is counted under the labels that lead to it, and those that go on from there. */
interface Series {
  labels: Record<string, string>
  n: number
  next: Map<string, Series>
}

/**
 * A counter that is kept here and told to prom-client when somebody asks: prom-client hashes all labels at each step, and there
 * are four steps for each task. The values are those of the labels, in their order.
 */
function counter(registers: Registry[], name: string, help: string, labelNames: string[]) {
  const all: Series = { labels: {}, n: 0, next: new Map() }
  new Counter({
    name,
    help,
    labelNames,
    registers,
    collect() {
      const tell = (one: Series): void => {
        if (one.n > 0) this.inc(one.labels, one.n)
        one.n = 0
        for (const next of one.next.values()) tell(next)
      }
      tell(all)
    }
  })
  return (values: string[], n = 1): void => {
    let one = all
    // A look for each label: one for all of them needs a text that is made and hashed anew each time.
    for (let at = 0; at < values.length; at++) {
      const value = values[at] as string
      let next = one.next.get(value)
      if (!next) {
        next = { labels: { ...one.labels, [labelNames[at] as string]: value }, n: 0, next: new Map() }
        one.next.set(value, next)
      }
      one = next
    }
    one.n += n
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
