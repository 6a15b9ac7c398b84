import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'

export type Metrics = ReturnType<typeof createMetrics>

/**
 * The numbers of this process, in the words of the glossary. Labels are only names that handlers declare or our own words, never
 * values of a caller, so that nobody can create more series.
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
  const attemptTime = new Times(
    registers,
    'ackbox_attempt_seconds',
    'How long attempts took',
    [0.005, 0.02, 0.1, 0.5, 2, 10, 60]
  )
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
  const lag = new Times(
    registers,
    'ackbox_queue_lag_seconds',
    'From the claim of a delivery to the start of its attempt',
    [0.005, 0.02, 0.1, 0.5, 2, 10, 30]
  )
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
      attemptTime.add(downstream, ms / 1000)
    },
    received(result: string, applied: boolean) {
      receipts([result, String(applied)])
    },
    moved(move: string, written: boolean, n = 1) {
      if (n > 0) moves([move, String(written)], n)
    },
    /** A delivery ended. `attempt` is its number: it gives the share of first-attempt successes. */
    ended(downstream: string, status: 'HANDLED' | 'FAILED' | 'DELETED', attempt: number, reason = '') {
      ended([downstream, status, reason])
      if (status === 'HANDLED') {
        handled++
        if (attempt === 1) direct++
      } else if (reason === 'SEND_EXHAUSTED' || reason === 'RECEIPT_TIMEOUT' || reason === 'RECEIPT_FAILED')
        failed++
    },
    started(downstream: string, lagMs: number) {
      lag.add(downstream, lagMs / 1000)
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
 * A counter that is copied to prom-client when it is read. prom-client hashes all labels at each step, and each task has four
 * steps. The values are the label values, in their order.
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
    // One look-up per label: a single look-up would need a new text that is hashed each time.
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

/** A histogram by downstream, kept here like the counters: prom-client hashes the label at each observation. */
class Times extends Histogram<'downstream'> {
  readonly #of: { name: string; help: string; bounds: number[] }
  /** `counts`: one for each bucket, and one beyond the last bucket. */
  readonly #kept = new Map<string, { counts: number[]; sum: number }>()

  constructor(registers: Registry[], name: string, help: string, bounds: number[]) {
    super({ name, help, labelNames: ['downstream'], buckets: bounds, registers })
    this.#of = { name, help, bounds }
  }

  add(downstream: string, seconds: number): void {
    const { bounds } = this.#of
    let kept = this.#kept.get(downstream)
    if (!kept) {
      kept = { counts: new Array<number>(bounds.length + 1).fill(0), sum: 0 }
      this.#kept.set(downstream, kept)
    }
    let at = 0
    while (at < bounds.length && seconds > (bounds[at] as number)) at++
    kept.counts[at] = (kept.counts[at] as number) + 1
    kept.sum += seconds
  }

  /** The value in prom-client's form. The format wants cumulative buckets: each counts everything below its bound. */
  async getForPromString() {
    const { name, help, bounds } = this.#of
    const values = [...this.#kept].flatMap(([downstream, { counts, sum }]) => {
      const told = (suffix: string, labels: object, value: number) => ({
        metricName: name + suffix,
        labels,
        sharedLabels: { downstream },
        value
      })
      let count = 0
      const buckets = counts.map((n, at) => told('_bucket', { le: bounds[at] ?? '+Inf' }, (count += n)))
      return [...buckets, told('_sum', {}, sum), told('_count', {}, count)]
    })
    return { name, help, type: 'histogram', aggregator: 'sum', values }
  }
}

/** 0/0 would print NaN and spoil every average. Before the first delivery there is no sample. */
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
