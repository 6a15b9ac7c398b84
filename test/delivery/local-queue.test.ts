import t, { type Test } from 'tap'
import type { QueuedClaim } from '../../src/delivery/enqueue.ts'
import type { ClaimedBatch } from '../../src/delivery/load.ts'
import { localQueue } from '../../src/delivery/local-queue.ts'
import { only } from '../support/only.ts'

const numbered = (count: number, downstream = 'warehouse'): QueuedClaim[] =>
  Array.from({ length: count }, (_, n) => ({ downstream, taskId: `${downstream}-${n}`, attempt: 1 }))

/** A process with `slots` open slots for each downstream, and lists of the jobs that it queued and started. */
function around(t: Test, slots: Record<string, number>) {
  const queue = { isAway: false }
  const queued: QueuedClaim[] = []
  const started: { job: ClaimedBatch; end: () => void; fail: (err: Error) => void }[] = []
  const spared: Record<string, number> = {}
  const errors: unknown[] = []
  const stop = new AbortController()
  t.teardown(() => started.forEach(one => one.end()))
  const near = localQueue({
    queue: {
      room: () => 3,
      isAway: () => queue.isAway,
      bypassed(downstream, deliveries) {
        spared[downstream] = (spared[downstream] ?? 0) + deliveries
      },
      add(deliveries) {
        queued.push(...deliveries)
        return Promise.resolve(deliveries.slice(0, 1))
      }
    },
    run: job => new Promise((resolve, reject) => started.push({ job, end: () => resolve(), fail: reject })),
    open: downstream => slots[downstream] ?? 0,
    stopping: stop.signal,
    log: { debug() {}, info() {}, warn() {}, error: fields => errors.push(fields) }
  })
  return { near, queue, queued, started, spared, errors, stop }
}

t.test('what can start here starts here, the rest goes to the queue', async t => {
  const { near, queued, started, spared } = around(t, { warehouse: 5, points: 1 })
  const left = await near.add([...numbered(5), ...numbered(2, 'points'), ...numbered(2, 'ledger')])
  t.same(
    started.map(one => [one.job.downstream, one.job.deliveries.length]),
    [['warehouse', 5]]
  )
  t.same(
    queued.map(one => one.taskId),
    ['points-0', 'points-1', 'ledger-0', 'ledger-1'],
    'all of a downstream or none'
  )
  t.same(spared, { warehouse: 5 }, 'the queue hears how many it was spared')
  t.same(left, queued.slice(0, 1), 'what the queue does not take is given back')
  t.equal(near.room('warehouse'), 3, 'the room of the queue')
})

t.test('what was handed over counts until it has its slots, or until it failed', async t => {
  const { near, queued, started, errors } = around(t, { warehouse: 4 })
  await near.add(numbered(3))
  await near.add(numbered(2))
  await near.add(numbered(1))
  t.same([started.length, queued.length], [2, 2])
  started[0]?.end()
  started[1]?.fail(new Error('PostgreSQL is away'))
  await near.idle()
  t.match(errors, only({ err: { message: 'PostgreSQL is away' }, deliveries: 1 }))
  await near.add(numbered(4))
  t.same([started.length, queued.length], [3, 2])
})

t.test('while the queue is away this process goes on by itself', async t => {
  const { near, queue, queued, started } = around(t, { warehouse: 4 })
  queue.isAway = true
  t.equal(near.room('warehouse'), 4)
  await near.add(numbered(5))
  t.same([started.length, queued.length], [1, 1], 'as many as can start')
  t.equal(near.room('warehouse'), 0)
})

t.test('once we stop nothing more starts here', async t => {
  const { near, queued, started, stop } = around(t, { warehouse: 9 })
  stop.abort()
  await near.add(numbered(2))
  t.same([started.length, queued.length], [0, 2])
  t.equal(near.room('warehouse'), 3)
})
