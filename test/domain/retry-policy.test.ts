import fc from 'fast-check'
import t from 'tap'
import {
  backoffMs,
  decide,
  defaultBackoff,
  effectiveRetryTimes,
  type Policy,
  type DeliveryTries
} from '../../src/domain/retry-policy.ts'
import type { Backoff } from '../../src/domain/types.ts'
import { apply, type DeliveryState } from '../support/model.ts'

const hour = 3_600_000
const fixed = (ms: number): Backoff => ({ kind: 'list', ms: [ms] })
const policy: Policy = { times: undefined, backoff: fixed(10_000), receiptTimeoutMs: 60_000 }
const tried: DeliveryTries = { triesLeft: 9, lost: 0, needsReceipt: false, retryTimes: null }
const middle = 0.5

t.test(
  'what was taken is HANDLED, unless a receipt is owed; an answer that is the receipt owes none',
  async t => {
    t.same(decide({ kind: 'delivered' }, tried, policy, middle), { move: 'handled', handledBy: 'send' })
    t.same(decide({ kind: 'delivered' }, { ...tried, needsReceipt: true }, policy, middle), {
      move: 'sent',
      afterMs: 60_000
    })
    const answered = { move: 'handled', handledBy: 'answer' }
    t.same(
      decide({ kind: 'delivered', handled: true }, { ...tried, needsReceipt: true }, policy, middle),
      answered
    )
    t.same(decide({ kind: 'delivered', handled: true }, tried, policy, middle), answered)
  }
)

t.test('a downstream that will never take it ends the delivery at once, whatever is left', async t => {
  t.same(decide({ kind: 'refused', reason: '410' }, tried, policy, middle), {
    move: 'fail',
    reason: 'REFUSED'
  })
})

t.test('the limit is the task’s, else the downstream’s, else ten', async t => {
  t.equal(effectiveRetryTimes(3, { ...policy, times: 5 }), 3)
  t.equal(effectiveRetryTimes(null, { ...policy, times: 5 }), 5)
  t.equal(effectiveRetryTimes(null, policy), 10)
})

t.test('with no try left each way of failing ends with its own reason', async t => {
  const last = { ...tried, triesLeft: 0, lost: 2 }
  const ends = (happened: Parameters<typeof decide>[0]) => decide(happened, last, policy, middle)
  t.same(ends({ kind: 'failed', reason: 'http_503' }), { move: 'fail', reason: 'SEND_EXHAUSTED' })
  t.same(ends({ kind: 'no_receipt' }), { move: 'fail', reason: 'RECEIPT_TIMEOUT' })
  t.same(ends({ kind: 'receipt', result: 'RETRY' }), { move: 'fail', reason: 'RECEIPT_FAILED' })
  t.same(ends({ kind: 'lost', mayHaveBeenSent: true }), { move: 'fail', reason: 'SEND_EXHAUSTED' })
  t.same(ends({ kind: 'shutdown' }), { move: 'fail', reason: 'SEND_EXHAUSTED' })
})

t.test('a receipt that says FAILED ends it at once; one that says RETRY backs off', async t => {
  t.same(decide({ kind: 'receipt', result: 'FAILED' }, tried, policy, middle), {
    move: 'fail',
    reason: 'RECEIPT_FAILED'
  })
  t.same(decide({ kind: 'receipt', result: 'RETRY' }, tried, policy, middle), {
    move: 'retry',
    afterMs: 10_000
  })
})

t.test('the default backoff doubles from 10 s to one hour', async t => {
  const waits = Array.from({ length: 12 }, (_, index) => backoffMs(defaultBackoff, index + 1, middle) / 1_000)
  t.same(waits, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600, 3_600])
  t.equal(backoffMs(defaultBackoff, 100, middle), hour)
})

t.test('a list is walked and its last value repeats', async t => {
  const list: Backoff = { kind: 'list', ms: [1_000, 60_000, 300_000] }
  t.same(
    [1, 2, 3, 4, 99].map(k => backoffMs(list, k, middle)),
    [1_000, 60_000, 300_000, 300_000, 300_000]
  )
})

t.test('the wait after a try is chosen by the tries that counted, not by the attempt number', async t => {
  const list: Policy = { ...policy, backoff: { kind: 'list', ms: [1_000, 60_000, 300_000] } }
  const after = (triesLeft: number) =>
    decide({ kind: 'failed', reason: 'x' }, { ...tried, triesLeft, retryTimes: 5 }, list, middle)
  t.same(
    [4, 3, 2, 1].map(after),
    [1_000, 60_000, 300_000, 300_000].map(afterMs => ({ move: 'retry', afterMs }))
  )
  // A deploy may make the limit smaller than triesLeft. The index of the wait must not fall below the first.
  t.same(after(50), { move: 'retry', afterMs: 1_000 })
})

t.test('every wait lies within ten per cent of its base', async t => {
  const backoff = fc.oneof(
    fc.constant(defaultBackoff),
    fc
      .array(fc.integer({ min: 1, max: hour }), { minLength: 1, maxLength: 8 })
      .map((ms): Backoff => ({ kind: 'list', ms }))
  )
  const random = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true })
  fc.assert(
    fc.property(backoff, fc.integer({ min: 1, max: 100 }), random, (one, k, luck) => {
      const base = backoffMs(one, k, middle)
      const wait = backoffMs(one, k, luck)
      return wait >= Math.floor(base * 0.9) - 1 && wait <= Math.ceil(base * 1.1) + 1 && Number.isInteger(wait)
    })
  )
  t.equal(backoffMs(defaultBackoff, 1, 0), 9_000)
  t.equal(backoffMs(defaultBackoff, 1, 0.999_999), 11_000)
})

t.test('Retry-After is a floor, never a shortcut, and asks for one hour at the most', async t => {
  const after = (retryAfterMs: number) =>
    decide({ kind: 'failed', reason: 'http_503', retryAfterMs }, tried, policy, middle)
  t.same(after(30_000), { move: 'retry', afterMs: 30_000 })
  t.same(after(1), { move: 'retry', afterMs: 10_000 })
  t.same(after(0), { move: 'retry', afterMs: 10_000 })
  t.same(after(-5), { move: 'retry', afterMs: 10_000 })
  t.same(after(90 * 24 * hour), { move: 'retry', afterMs: hour })
})

t.test('what a person must mend is tried slowly, and a longer backoff stays', async t => {
  const blocked = { kind: 'failed', reason: 'blocked_target', alarm: 'BLOCKED_TARGET' } as const
  t.same(decide(blocked, tried, policy, middle), { move: 'retry', afterMs: 60_000 })
  t.same(decide(blocked, tried, { ...policy, backoff: fixed(hour) }, middle), {
    move: 'retry',
    afterMs: hour
  })
})

t.test('a lost lease is no send: without workers it never counts, else the first two do not', async t => {
  const lost = (lost: number, mayHaveBeenSent: boolean) =>
    decide({ kind: 'lost', mayHaveBeenSent }, { ...tried, lost }, policy, middle)
  t.same(lost(0, false), { move: 'release', afterMs: 0 })
  t.same(lost(99, false), { move: 'release', afterMs: 0 })
  t.same(lost(0, true), { move: 'lose', afterMs: 0 })
  t.same(lost(1, true), { move: 'lose', afterMs: 0 })
  t.same(lost(2, true), { move: 'retry', afterMs: 10_000 })
})

t.test('our own restarts are for free as often as lost leases are', async t => {
  const shutdown = (lost: number) => decide({ kind: 'shutdown' }, { ...tried, lost }, policy, middle)
  t.same([0, 1, 2].map(shutdown), [
    { move: 'lose', afterMs: 0 },
    { move: 'lose', afterMs: 0 },
    { move: 'retry', afterMs: 10_000 }
  ])
})

t.test('a task that kills its worker every time is FAILED after its limit and two', async t => {
  for (const retryTimes of [1, 2, 10, 100]) {
    let at: DeliveryState = { state: 'WAITING', attempt: 0, triesLeft: retryTimes, lost: 0, roundFrom: 1 }
    while (at.state === 'WAITING') {
      const claimed = apply(at, { name: 'claim', attempt: at.attempt })
      if (!claimed) throw new Error('not claimed')
      const decision = decide(
        { kind: 'lost', mayHaveBeenSent: true },
        { ...claimed, needsReceipt: false, retryTimes },
        policy,
        middle
      )
      at = apply(claimed, { name: decision.move, attempt: claimed.attempt }) ?? at
    }
    t.match(at, { state: 'FAILED', attempt: retryTimes + 2, triesLeft: 0 })
  }
})
