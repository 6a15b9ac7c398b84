import t from 'tap'
import { limiter } from '../../src/queue/limiter.ts'
import { until } from '../support/until.ts'

const never = new AbortController().signal
const alone = () => 1
/** Lets everything that is ready run. */
const settle = () => new Promise(resolve => setImmediate(resolve))

t.test('no more run at once than the concurrency, and the next starts when one is over', async t => {
  const limit = limiter({ concurrency: 2, share: alone })
  const started: number[] = []
  for (const n of [1, 2, 3, 4]) void limit.take(never).then(() => started.push(n))
  await settle()
  t.same(started, [1, 2])
  t.equal(limit.waiting, 2)
  limit.free()
  await settle()
  t.same(started, [1, 2, 3], 'in the order of asking')
  limit.free()
  limit.free()
  limit.free()
  await settle()
  t.same(started, [1, 2, 3, 4])
  t.match(limit, { inUse: 0, waiting: 0 })
})

t.test('workers share a limit, and each has at least one slot', async t => {
  let workers = 4
  const limit = limiter({ concurrency: 8, share: () => 1 / workers })
  let started = 0
  for (let i = 0; i < 12; i++) void limit.take(never).then(() => started++)
  await settle()
  t.equal(started, 2)
  workers = 2 // two of them died
  limit.free()
  await settle()
  t.equal(limit.inUse, 4)
  workers = 100
  const small = limiter({ concurrency: 8, share: () => 1 / workers })
  await small.take(never)
  t.equal(small.inUse, 1)
})

t.test('a raised limit counts although no slot becomes free', async t => {
  const options = { concurrency: 1, share: alone }
  const limit = limiter(options)
  for (let i = 0; i < 3; i++) void limit.take(never)
  await settle()
  t.match(limit, { inUse: 1, waiting: 2 })
  options.concurrency = 50
  await until('they start', () => limit.waiting === 0)
  t.equal(limit.inUse, 3)
})

t.test(
  'a probe and the send after it are two requests of the rate, and what has begun goes first',
  async t => {
    let time = 0
    const limit = limiter({ concurrency: 9, perSecond: 10, share: alone, now: () => time })
    t.ok(limit.tryTake())
    const started: string[] = []
    void limit.take(never).then(() => started.push('another delivery'))
    const send = limit.takeToken(never).then(() => started.push('the send'))
    const stop = new AbortController()
    const stopped = limit.takeToken(stop.signal)
    stop.abort(new Error('no time left'))
    await t.rejects(stopped, /no time left/)
    await settle()
    t.same(started, [])
    t.notOk(limit.tryTake())
    time = 100
    await send
    t.same(started, ['the send'])
    time = 200
    await until('the other starts', () => started.length === 2)
    t.equal(limit.inUse, 2)
    await limiter({ concurrency: 1, share: alone }).takeToken(never)
  }
)

t.test('a borrowed token is missing later: whatever starts next waits for longer', async t => {
  let time = 0
  const limit = limiter({ concurrency: 9, perSecond: 10, share: alone, now: () => time })
  t.ok(limit.tryTake())
  limit.borrowToken()
  time = 100
  t.notOk(limit.tryTake())
  time = 200
  t.ok(limit.tryTake())
})

t.test('one who gives up waiting leaves the others in their order', async t => {
  const limit = limiter({ concurrency: 1, share: alone })
  await limit.take(never)
  const stop = new AbortController()
  const started: string[] = []
  const quitter = limit.take(stop.signal)
  void limit.take(never).then(() => started.push('patient'))
  stop.abort(new Error('stopping'))
  await t.rejects(quitter, { message: 'stopping' })
  await t.rejects(limit.take(stop.signal), { message: 'stopping' }, 'nor does it start later')
  t.equal(limit.waiting, 1)
  limit.free()
  await settle()
  t.same(started, ['patient'])
  limit.free()
  t.match(limit, { inUse: 0, waiting: 0 })
})

t.test('ten thousand who wait on one signal end at once, without a warning', async t => {
  const limit = limiter({ concurrency: 1, share: alone })
  await limit.take(never)
  const warnings: Error[] = []
  const onWarning = (warning: Error) => warnings.push(warning)
  process.on('warning', onWarning)
  t.teardown(() => process.off('warning', onWarning))
  const stop = new AbortController()
  const all = Array.from({ length: 10_000 }, () => limit.take(stop.signal))
  stop.abort(new Error('stopping'))
  const ends = await Promise.allSettled(all)
  t.ok(ends.every(end => end.status === 'rejected'))
  t.equal(limit.waiting, 0)
  await settle()
  t.same(warnings, [])
})

t.test('no second sees more starts than perSecond, and in the long run nearly as many', async t => {
  for (const perSecond of [1, 5, 40, 200, 1000]) {
    let clock = 0
    const limit = limiter({ concurrency: 1e9, perSecond, share: alone, now: () => clock })
    const at: number[] = []
    // The test controls the clock. Each step takes slots until one would have to wait. The signal ends that wait.
    for (clock = 0; clock < 10_000; clock += 1) {
      for (;;) {
        const signal = new AbortController()
        const taken = limit.take(signal.signal).then(
          () => true,
          () => false
        )
        signal.abort(new Error('not now'))
        if (!(await taken)) break
        at.push(clock)
      }
    }
    let most = 0
    for (let first = 0, last = 0; last < at.length; last++) {
      while ((at[last] ?? 0) - (at[first] ?? 0) >= 1000) first++
      most = Math.max(most, last - first + 1)
    }
    t.ok(most <= perSecond, `${perSecond}/s: at most ${most} in a second`)
    t.ok(at.length >= perSecond * 10 * 0.9 - 1, `${perSecond}/s: ${at.length} in ten seconds`)
  }
})

t.test('a slot in which nothing was sent gives its place in the rate to the next', async t => {
  const limit = limiter({ concurrency: 2, perSecond: 1, share: alone, now: () => 0 })
  for (let n = 0; n < 20; n++) {
    t.ok(limit.tryTake())
    t.notOk(limit.tryTake(), 'one a second')
    limit.free(true)
  }
  t.ok(limit.tryTake())
  limit.free()
  t.notOk(limit.tryTake(), 'one was sent')
})

t.test('a rate limit wakes by itself, in order, and counts with the share', async t => {
  const limit = limiter({ concurrency: 10, perSecond: 100, share: () => 0.5 })
  const began = performance.now()
  const order: number[] = []
  await Promise.all(
    Array.from({ length: 20 }, (_, n) =>
      limit.take(never).then(() => {
        order.push(n)
        limit.free()
      })
    )
  )
  const took = performance.now() - began
  t.same(
    order,
    order.toSorted((a, b) => a - b)
  )
  // 50 a second for this worker, the first few at once
  t.ok(took > 250, `${took} ms`)
})

t.test('open: what could start now, or within 150 ms at the pace of late', async t => {
  let at = 0
  const limit = limiter({ concurrency: 10, share: alone, now: () => at })
  t.equal(limit.open(), 10)
  for (let i = 0; i < 10; i++) t.ok(limit.tryTake())
  t.equal(limit.open(), 0, 'nothing was over yet: there is no pace to hope for')
  void limit.take(never)
  at = 50
  for (let i = 0; i < 5; i++) limit.free()
  t.equal(limit.open(), 4, 'five are over, and one of them has been taken')
  at = 100
  t.equal(limit.open(), 11, 'five in 100 ms')
  at = 300
  t.equal(limit.open(), 4, 'none in 200 ms')
})

t.test('open: no more than there are tokens', t => {
  let at = 0
  const limit = limiter({ concurrency: 10, perSecond: 40, share: alone, now: () => at })
  at = 1_000
  t.equal(limit.open(), 3)
  t.ok(limit.tryTake())
  t.equal(limit.open(), 2)
  t.end()
})

t.test('a rate that is raised frees those who wait by the old one', async t => {
  const options = { concurrency: 10, perSecond: 0.001, share: alone }
  const limit = limiter(options)
  await limit.take(never)
  const waiting = limit.take(never)
  options.perSecond = 1_000
  await waiting
  t.equal(limit.inUse, 2)
})
