import t from 'tap'
import { jobSize, prefetchWindow } from '../../src/queue/prefetch-window.ts'

const limits = { concurrency: 50, leaseMs: 20_000 }

t.test('a job holds what can be placed soon', async t => {
  t.equal(jobSize({ ...limits, concurrency: 10 }), 10)
  t.equal(jobSize({ ...limits, concurrency: 1000 }), 200)
  t.equal(jobSize({ ...limits, perSecond: 40 }), 10, 'a quarter of a second')
  t.equal(jobSize({ ...limits, perSecond: 1 }), 1)
})

function clocked(more: Partial<Parameters<typeof prefetchWindow>[0]> = {}) {
  let ms = 0
  const window = prefetchWindow({ ...limits, ...more }, () => ms)
  return {
    window,
    /** A worker of this process takes and starts `deliveries`. */
    starts(deliveries: number) {
      window.taken(deliveries)
      for (let i = 0; i < deliveries; i++) window.started()
    },
    /** 200 ms later the queue is counted. */
    count: (jobs: number) => {
      ms += 200
      window.counted(window.look(), jobs)
    }
  }
}

t.test('a young or dead downstream may have twice its concurrency waiting', async t => {
  const { window, count } = clocked()
  t.equal(window.size(), 100)
  window.added(100, 2)
  t.equal(window.waiting(), 100, 'before BullMQ was asked')
  for (let i = 0; i < 20; i++) count(2)
  t.equal(window.waiting(), 100)
  t.equal(window.size(), 100)
})

t.test(
  'a downstream with a rate limit has no more waiting than it takes in a quarter of a lease',
  async t => {
    t.equal(clocked({ perSecond: 2 }).window.size(), 10)
  }
)

t.test('a fast downstream has a window that never runs dry: told by the workers here', async t => {
  const { window, starts, count } = clocked()
  for (let i = 0; i < 10; i++) {
    window.added(200, 4)
    starts(200)
    count(0)
  }
  t.equal(Math.round(window.perSecond()), 1000)
  t.equal(Math.round(window.size()), 5000, 'a quarter of a lease, five seconds')
  t.equal(window.waiting(), 0)
})

t.test('what starts without waiting here counts for the pace', async t => {
  const { window, count } = clocked()
  for (let i = 0; i < 10; i++) {
    window.bypassed(200)
    count(0)
  }
  t.equal(window.waiting(), 0)
  t.equal(Math.round(window.size()), 5000)
})

t.test('where no worker runs, what was added and is not there any more was started', async t => {
  const { window, count } = clocked()
  for (let i = 0; i < 10; i++) {
    window.added(200, 4)
    count(i < 5 ? (i + 1) * 4 : 20) // nothing starts in the first second
  }
  t.equal(Math.round(window.perSecond()), 1000)
  t.equal(window.waiting(), 1000)
  t.equal(Math.round(window.size()), 5000)
})

function busy() {
  const clock = clocked()
  for (let i = 0; i < 10; i++) {
    clock.window.added(200, 4)
    clock.starts(200)
    clock.count(0)
  }
  return clock
}

t.test('a second in which jobs wait and none starts, and the window is small again', async t => {
  const { window, count } = busy()
  window.added(200, 4)
  for (let i = 0; i < 5; i++) count(4)
  t.equal(window.size(), 5000, 'less than a second: they may only just have come')
  count(4)
  t.equal(window.size(), 100)
})

t.test('a pace is remembered while nothing waits, for a minute', async t => {
  const { window, count } = busy()
  for (let i = 0; i < 290; i++) count(0)
  t.equal(window.size(), 5000, 'the next burst begins with a window that fits')
  for (let i = 0; i < 20; i++) count(0)
  t.equal(window.size(), 100)
})

t.test('a slower pace while jobs wait is believed after a second', async t => {
  const { window, starts, count } = busy()
  window.added(2000, 40)
  for (let i = 0; i < 10; i++) {
    starts(100)
    count(38 - i * 2)
  }
  t.equal(Math.round(window.perSecond()), 500)
  t.equal(Math.round(window.size()), 2500)
})

t.test('however fast, at most 10,000 wait', async t => {
  const { window, starts, count } = clocked()
  for (let i = 0; i < 6; i++) {
    window.added(10_000, 157)
    starts(10_000)
    count(0)
  }
  t.equal(window.size(), 10_000)
})

t.test('jobs that others added count with the size of our own jobQueue, or as full ones', async t => {
  const { window, count } = clocked()
  count(3)
  t.equal(window.waiting(), 150)
  window.added(1, 1)
  count(4)
  t.equal(window.waiting(), 4)
})

t.test('a flush of what waited too long is no pace', async t => {
  for (const worker of ['here', 'apart']) {
    const { window, starts, count } = clocked()
    for (let i = 0; i < 10; i++) {
      window.added(1000, 20)
      if (worker === 'here') starts(600)
      count((i + 1) * 8)
    }
    t.equal(Math.round(window.size()), 10_000, '3,000 a second')
    // From now on nothing starts. 4,000 deliveries wait until their leases are nearly over, and leave all at once.
    for (let i = 0; i < 60; i++) count(80)
    t.equal(window.size(), 100)
    if (worker === 'here') window.taken(4000)
    for (const jobs of [40, 0, 0, 0]) {
      count(jobs)
      t.equal(window.size(), 100, `${worker}: as small as before`)
    }
    t.ok(window.waiting() < 100)
    for (let i = 0; i < 10; i++) {
      window.added(100, 2)
      if (worker === 'here') starts(100)
      count(0)
    }
    t.equal(Math.round(window.size()), 2500, 'and what starts then is one again')
  }
})
