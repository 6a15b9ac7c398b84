import t from 'tap'
import type { Backend, DeliveryRef } from '../../src/queue/backend.ts'
import { openJobQueue } from '../../src/queue/job-queue.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { downstream, queuedDeliveries, openTestQueue, recordingLog, until } from './setup.ts'

/** A backend that the test controls. It records its calls. */
function fakeBackend(clock = (): number => performance.now()) {
  const flights: { jobs: DeliveryRef[][]; land: () => void; fail: (error: Error) => void }[] = []
  const pings: number[] = []
  const fake = {
    flights,
    pings,
    alive: true,
    lose: () => {}
  }
  const backend: Backend = {
    kind: 'redis',
    add: (_, jobs) =>
      new Promise((resolve, reject) => {
        flights.push({ jobs, land: resolve, fail: reject })
      }),
    count: async () => 0,
    takenBy: async () => [],
    consumer: () => Promise.reject(new Error('no workers here')),
    ping: async () => {
      pings.push(clock())
      if (!fake.alive) throw new Error('away')
    },
    up: () => fake.alive,
    onLost: listener => {
      fake.lose = listener
    },
    close: async () => {}
  }
  return { fake, backend }
}

const tick = () => new Promise(resolve => setImmediate(resolve))

t.test(
  'deliveries that come in together share a job, those that come while it is written share the next',
  async t => {
    const { fake, backend } = fakeBackend()
    const jobQueue = openTestQueue(t, backend, [downstream('shop')])
    const answers = [jobQueue.add(queuedDeliveries('shop', 1)), jobQueue.add(queuedDeliveries('shop', 2, 1))]
    await tick()
    t.same(
      fake.flights.map(flight => flight.jobs.map(job => job.length)),
      [[3]]
    )
    for (let i = 0; i < 60; i++) answers.push(jobQueue.add(queuedDeliveries('shop', 1, 10 + i)))
    await tick()
    t.equal(fake.flights.length, 1, 'one flight at a time')
    fake.flights[0]?.land()
    await tick()
    t.same(
      fake.flights[1]?.jobs.map(job => job.length),
      [50, 10]
    )
    fake.flights[1]?.land()
    t.same((await Promise.all(answers)).flat(), [])
  }
)

t.test('one downstream whose adds hang holds up none of the others', async t => {
  const { fake, backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [downstream('shop'), downstream('points')])
  const stuck = jobQueue.add(queuedDeliveries('shop', 1))
  const other = jobQueue.add(queuedDeliveries('points', 1))
  await tick()
  fake.flights[1]?.land()
  t.same(await other, [])
  fake.flights[0]?.land()
  await stuck
})

t.test('whatever happens, add answers within 250 ms with what was not added', async t => {
  const { fake, backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [downstream('shop')])
  fake.alive = false
  const began = stopwatch(t)
  const first = jobQueue.add(queuedDeliveries('shop', 3))
  await new Promise(resolve => setTimeout(resolve, 100))
  const second = jobQueue.add(queuedDeliveries('shop', 2, 3)) // gathers behind the first
  t.same(await first, queuedDeliveries('shop', 3))
  t.same(await second, queuedDeliveries('shop', 2, 3))
  t.ok(began() < 1_000, `${began()} ms`)
  const again = stopwatch(t)
  t.same(await jobQueue.add(queuedDeliveries('shop', 1)), queuedDeliveries('shop', 1), 'refused at once now')
  t.ok(again() < 200)
})

t.test('a count that never gets an answer does not keep the room for ever', async t => {
  const { fake, backend } = fakeBackend()
  let counts = 0
  backend.count = async () => (counts++ === 0 ? await new Promise<never>(() => {}) : 0)
  const log = recordingLog()
  const jobQueue = openTestQueue(t, backend, [downstream('shop')], log.log)
  const added = jobQueue.add(queuedDeliveries('shop', 100))
  await tick()
  fake.flights[0]?.land()
  t.same(await added, [])
  t.equal(jobQueue.room('shop'), 0)
  await log.said('queue.unavailable')
  await log.said('queue.available')
  await until('the next count tells that there is room', () => jobQueue.room('shop') === 100)
})

t.test('a second outage within ten seconds is told once it lasts, and its end only then', async t => {
  const { fake, backend } = fakeBackend()
  const log = recordingLog()
  let time = 0
  const jobQueue = openJobQueue({
    backend,
    downstreams: [downstream('shop')],
    log: log.log,
    now: () => time
  })
  t.teardown(() => jobQueue.stop())
  const told = () => log.lines.map(line => line.message)
  const isBack = async () => await until('it is back', () => jobQueue.room('shop') > 0)
  fake.lose()
  await isBack()
  fake.lose()
  await isBack()
  t.same(told(), ['queue.unavailable', 'queue.available'])
  fake.alive = false
  fake.lose()
  const before = fake.pings.length
  await until('a ping is in vain', () => fake.pings.length > before + 1)
  t.equal(told().length, 2)
  time = 10_000
  await until('the outage is told', () => told().length === 3)
  fake.alive = true
  await isBack()
  t.same(told().slice(2), ['queue.unavailable', 'queue.available'])
})

t.test('an unknown downstream is not added either', async t => {
  const { backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [])
  t.same(await jobQueue.add(queuedDeliveries('gone', 1)), queuedDeliveries('gone', 1))
  t.equal(jobQueue.room('gone'), 0)
})

t.test('a rejection is an answer too', async t => {
  const { fake, backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [downstream('shop')])
  const answer = jobQueue.add(queuedDeliveries('shop', 1))
  await tick()
  fake.flights[0]?.fail(new Error("OOM command not allowed when used memory > 'maxmemory'"))
  t.same(await answer, queuedDeliveries('shop', 1))
})

t.test(
  'after a failure there is no room until a ping succeeds, one at least every 500 ms, and one line',
  async t => {
    const { fake, backend } = fakeBackend(stopwatch(t))
    const log = recordingLog()
    const jobQueue = openTestQueue(t, backend, [downstream('shop'), downstream('points')], log.log)
    t.equal(jobQueue.room('shop'), 100)
    fake.alive = false
    fake.lose()
    t.equal(jobQueue.room('shop'), 0)
    t.equal(jobQueue.room('points'), 0)
    await until('some pings', () => fake.pings.length >= 4)
    t.equal(jobQueue.room('shop'), 0)
    fake.pings.reduce((before, at) => {
      t.ok(at - before <= 500, `${at - before} ms between pings`)
      return at
    })
    fake.alive = true
    await log.said('queue.available')
    t.equal(jobQueue.room('shop'), 100)
    t.equal(jobQueue.room('points'), 100)
    t.same(
      log.lines.map(line => line.message.split(':')[0]),
      ['queue.unavailable', 'queue.available']
    )
  }
)

t.test(
  'a queue that is lost just after the ping that brought another back is pinged for as well',
  async t => {
    // The queue may be lost in any of the microtasks after the answer. The test tries each.
    for (let after = 0; after <= 12; after++) {
      const { fake, backend } = fakeBackend()
      let pong: (() => void) | undefined
      const first = new Promise<void>(resolve => {
        pong = resolve
      })
      const pings = [first]
      const ping = () => pings.pop() ?? Promise.resolve()
      const jobQueue = openTestQueue(t, { ...backend, ping }, [downstream('shop'), downstream('points')])
      const shop = jobQueue.add(queuedDeliveries('shop', 1))
      const points = jobQueue.add(queuedDeliveries('points', 1, 1))
      await tick()
      fake.flights[0]?.fail(new Error('OOM'))
      await shop
      t.equal(pings.length, 0, 'shop is away, and pinged for')
      pong?.()
      for (let i = 0; i < after; i++) await Promise.resolve()
      fake.flights[1]?.fail(new Error('OOM'))
      await points
      await until(`points is back, lost ${after} microtasks later`, () => !jobQueue.isAway('points'))
    }
  }
)

t.test('a job that arrives after it was given up fills the window, and nobody hears of it again', async t => {
  const { fake, backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [downstream('shop')])
  t.same(await jobQueue.add(queuedDeliveries('shop', 7)), queuedDeliveries('shop', 7))
  await until('the ping', () => jobQueue.room('shop') > 0)
  t.equal(jobQueue.queued('shop'), 0)
  fake.flights[0]?.land()
  await tick()
  t.equal(jobQueue.queued('shop'), 7)
})

t.test('what is being added takes up room already', async t => {
  const { fake, backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [downstream('shop')])
  const answers = [jobQueue.add(queuedDeliveries('shop', 30)), jobQueue.add(queuedDeliveries('shop', 10))]
  t.equal(jobQueue.room('shop'), 60)
  await tick()
  t.equal(jobQueue.room('shop'), 60)
  fake.flights[0]?.land()
  await Promise.all(answers)
  t.equal(jobQueue.room('shop'), 60)
  jobQueue.taken('shop', 40)
  t.equal(jobQueue.queued('shop'), 0, 'the workers of this process give it back at once')
  t.equal(jobQueue.room('shop'), 100)
  for (let i = 0; i < 40; i++) jobQueue.started('shop')
  t.equal(jobQueue.room('shop'), 200, 'and forty a second need two hundred for a quarter of a lease')
})

t.test('a stop ends what is being added first', async t => {
  const { fake, backend } = fakeBackend()
  const jobQueue = openTestQueue(t, backend, [downstream('shop')])
  const answer = jobQueue.add(queuedDeliveries('shop', 1))
  await tick()
  const stopped = jobQueue.stop()
  fake.flights[0]?.land()
  t.same(await answer, [])
  await stopped
  t.same(await jobQueue.add(queuedDeliveries('shop', 1)), queuedDeliveries('shop', 1))
  t.equal(jobQueue.room('shop'), 0)
})
