import t from 'tap'
import { reach, type ReachDeps } from '../../src/delivery/reach.ts'
import type { Outcome } from '../../src/domain/types.ts'
import { only } from '../support/only.ts'

const lost: Outcome = { kind: 'failed', reason: 'dns: ENOTFOUND' }
const busy: Outcome = { kind: 'failed', reason: 'http_503', status: 503 }
const fine: Outcome = { kind: 'delivered', status: 200 }

/** A worker. The test controls its clock and its view of the other workers. */
function setup(yieldAfter = 3) {
  const at = { ms: 1_000 }
  const others = { workers: 2, reachedAt: 0, doubted: [] as string[] }
  const said: object[] = []
  const told = { count: 0, yields: 0 }
  const deps: ReachDeps = {
    yieldAfter,
    now: () => at.ms,
    cluster: {
      workers: () => others.workers,
      reachedByOthersAt: () => others.reachedAt,
      doubtedByOthers: () => others.doubted,
      now: () => new Date(1_700_000_000_000 + at.ms)
    },
    tell: () => told.count++,
    metrics: { yielded: () => told.yields++ },
    log: {
      debug() {},
      info() {},
      error() {},
      warn: (fields: object, name: string) => said.push({ ...fields, name })
    }
  }
  const one = reach(deps)
  return {
    ...one,
    at,
    others,
    said,
    told,
    /** Makes an attempt that begins and ends now. True: it is released without using a try. */
    attempt: (outcome: Outcome) => one.recordAttempt('ads', outcome, at.ms),
    othersReachIt() {
      others.reachedAt = 1_700_000_000_000 + at.ms
    }
  }
}

t.test('a worker that fails on the way while others succeed yields the downstream for a minute', async t => {
  const { attempt, at, isSuspended, othersReachIt, said, told, yielded, reached } = setup()
  t.same([attempt(lost), attempt(lost)], [false, false], 'the first count')
  t.equal(attempt(lost), true, 'the third does not: it is in doubt')
  t.equal(isSuspended('ads'), true)
  t.equal(told.count, 1, 'and the others are asked')
  t.match(yielded(), only({ downstream: 'ads', isDoubt: true, reason: 'dns: ENOTFOUND' }))
  at.ms += 1_000
  othersReachIt()
  t.equal(isSuspended('ads'), false, 'others succeed: it tries once more')
  at.ms += 100
  t.equal(attempt(lost), true)
  t.match(said, only({ name: 'worker.yielded', downstream: 'ads', reason: 'dns: ENOTFOUND', failures: 4 }))
  t.equal(told.yields, 1)
  at.ms += 59_000
  t.equal(isSuspended('ads'), true)
  t.equal(isSuspended('points'), false, 'nothing else is')
  at.ms += 1_000
  t.equal(isSuspended('ads'), false, 'after a minute it tries again')
  t.equal(attempt(lost), true, 'and the first failure ends that')
  t.equal(isSuspended('ads'), true)
  at.ms += 60_000
  t.equal(isSuspended('ads'), false)
  t.equal(attempt(fine), false)
  t.same([attempt(lost), attempt(lost)], [false, false], 'once it is well the count begins anew')
  t.same(Object.keys(reached()), ['ads'])
})

t.test('a downstream that nobody reaches is not left to anybody: its failures count', async t => {
  const { attempt, at, isSuspended, said, othersReachIt } = setup()
  othersReachIt() // before the downstream went away
  at.ms += 1_000
  for (let i = 0; i < 3; i++) attempt(lost)
  t.equal(isSuspended('ads'), true, 'in doubt')
  at.ms += 5_000
  t.equal(isSuspended('ads'), false)
  for (let i = 0; i < 10; i++) t.equal(attempt(lost), false, 'nobody reached it')
  t.same(said, [])
  at.ms += 500
  othersReachIt()
  t.equal(attempt(fine), false, 'it is back, for all')
  t.equal(isSuspended('ads'), false)
})

t.test('an attempt that began before the others reached it says nothing about now', async t => {
  const { attempt, recordAttempt, at, isSuspended, othersReachIt, said } = setup()
  const before = at.ms
  for (let i = 0; i < 3; i++) attempt(lost)
  at.ms += 1_000
  othersReachIt()
  t.equal(isSuspended('ads'), false)
  t.equal(recordAttempt('ads', lost, before), true, 'released')
  t.same(said, [], 'and not judged')
  t.equal(isSuspended('ads'), false)
})

t.test(
  'answers, of whatever kind, are reached downstreams; time-outs and our own errors say nothing',
  async t => {
    const { attempt, isSuspended } = setup()
    attempt(lost)
    attempt(lost)
    attempt(busy)
    attempt(lost)
    attempt(lost)
    t.equal(isSuspended('ads'), false, 'a 503 is an answer')
    attempt({ kind: 'failed', reason: 'timeout' })
    attempt({ kind: 'failed', reason: 'hook: no' })
    t.equal(isSuspended('ads'), false)
    t.equal(attempt(lost), true, 'they do not end a run either')
  }
)

t.test('the only worker never yields, and one that becomes the only one takes all again', async t => {
  const { attempt, others, at, isSuspended, othersReachIt } = setup()
  others.workers = 1
  for (let i = 0; i < 9; i++) t.equal(attempt(lost), false)
  others.workers = 2
  attempt(lost)
  at.ms += 100
  othersReachIt()
  isSuspended('ads')
  attempt(lost)
  t.equal(isSuspended('ads'), true)
  others.workers = 1
  t.equal(isSuspended('ads'), false)
})

t.test('who reached what others doubt has news for them, once', async t => {
  const { attempt, hasNews, others, at, reached } = setup()
  attempt(fine)
  t.equal(hasNews(), false)
  others.doubted = ['ads']
  t.equal(hasNews(), true)
  t.same(reached(), { ads: 1_700_000_000_000 + at.ms })
  t.equal(hasNews(), false, 'until it reaches it again')
  at.ms += 10
  attempt(fine)
  t.equal(hasNews(), true)
})

t.test('0 switches it off', async t => {
  const { attempt, isSuspended } = setup(0)
  for (let i = 0; i < 50; i++) t.equal(attempt(lost), false)
  t.equal(isSuspended('ads'), false)
})
