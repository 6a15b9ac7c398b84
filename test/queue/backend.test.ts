import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { emptyDb } from '../support/postgres.ts'
import { testRedis } from '../support/redis.ts'
import { stopwatch, workedOver } from '../support/stopwatch.ts'
import type { DeliveryRef } from '../../src/queue/backend.ts'
import {
  downstream,
  ownPrefix,
  queuedDeliveries,
  openTestBackend,
  openTestQueue,
  patientMs,
  until,
  work
} from './setup.ts'

type Where = { redisUrl: string } | { databaseUrl: string }

async function onRedis(t: Test): Promise<Where | undefined> {
  const redis = await testRedis(t)
  return redis && { redisUrl: redis.url }
}
const onPostgres = async (t: Test): Promise<Where> => ({ databaseUrl: await emptyDb(t) })

for (const [name, open] of [
  ['Redis', onRedis],
  ['PostgreSQL', onPostgres]
] as const) {
  t.test(`jobs on ${name}`, async t => {
    const where = await open(t)
    if (!where) return

    t.test('every delivery added comes to a worker once, and leaves nothing behind', async t => {
      const shop = downstream('shop')
      const backend = await openTestBackend(t, where, ['shop'])
      const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
      t.same(await jobQueue.add(queuedDeliveries('shop', 500)), [])
      t.equal(await backend.count('shop'), 10, '50 in a job')
      const worker = work(t, backend, [shop])
      await worker.got(500)
      t.same(
        worker.deliveries().toSorted(),
        queuedDeliveries('shop', 500)
          .map(one => one.taskId)
          .toSorted()
      )
      await until('the queue is empty', async () => (await backend.count('shop')) === 0)
      await worker.stop()
      t.equal(worker.deliveries().length, 500)
    })

    t.test('what a worker has taken is found by its name until it is ended', async t => {
      const shop = downstream('shop')
      const prefix = ownPrefix()
      const [one, other] = await Promise.all(
        ['worker-1', 'worker-2'].map(worker => openTestBackend(t, where, ['shop'], { prefix, worker }))
      )
      const refs = (from: number) =>
        queuedDeliveries('shop', 3, from).map(({ taskId, attempt }): DeliveryRef => [taskId, attempt])
      await one!.add('shop', [refs(0), refs(3), refs(6)])
      const options = { lockMs: shop.leaseMs, onError: () => {} }
      const [mine, theirs] = [await one!.consumer('shop', options), await other!.consumer('shop', options)]
      t.teardown(() => Promise.all([mine.close(), theirs.close()]))
      const first = await mine.take()
      const second = await theirs.take()
      const takenBy = async (worker: string) => await other!.takenBy('shop', worker)
      t.same(await takenBy('worker-1'), first?.deliveries)
      t.same(await takenBy('worker-2'), second?.deliveries)
      t.same(await takenBy('worker-3'), [])
      // The end of this job and the take of the next share one round trip.
      const ended = first?.done()
      const third = await mine.take()
      await ended
      t.same(await takenBy('worker-1'), third?.deliveries)
      await Promise.all([second?.done(), third?.done()])
      t.same([await takenBy('worker-1'), await takenBy('worker-2')], [[], []])
    })

    t.test('each downstream has a queue of its own: one that hangs holds up no other', async t => {
      const both = [downstream('shop'), downstream('points')]
      const backend = await openTestBackend(t, where, ['shop', 'points'])
      const jobQueue = openTestQueue(t, backend, both, undefined, patientMs)
      t.same(await jobQueue.add([...queuedDeliveries('shop', 3), ...queuedDeliveries('points', 3, 3)]), [])
      t.equal(await backend.count('shop'), 1)
      t.equal(await backend.count('points'), 1)
      let release: (() => void) | undefined
      const worker = work(t, backend, both, async job => {
        if (job.downstream === 'shop')
          await new Promise<void>(resolve => {
            release = resolve
          })
      })
      await worker.got(6)
      t.same(await jobQueue.add(queuedDeliveries('points', 100, 6)), [])
      await worker.got(106)
      release?.()
    })

    t.test('one delivery on an idle service is picked up in a few milliseconds', async t => {
      const shop = downstream('shop')
      const backend = await openTestBackend(t, where, ['shop'])
      const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
      const worker = work(t, backend, [shop])
      const watch = stopwatch(t)
      const took: number[] = []
      for (let i = 0; i < 20; i++) {
        // The pause leaves the worker without work, so that it blocks.
        await new Promise(resolve => setTimeout(resolve, 30))
        const began = watch()
        await jobQueue.add(queuedDeliveries('shop', 1, i))
        await worker.got(i + 1)
        took.push(watch() - began)
      }
      const median = took.toSorted((a, b) => a - b)[10] ?? Infinity
      // A worker that only polls does so every few seconds.
      t.ok(median < 500, `median ${median} ms`)
    })

    t.test('a job added twice comes twice, and does no harm', async t => {
      const shop = downstream('shop')
      const backend = await openTestBackend(t, where, ['shop'])
      const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
      await jobQueue.add(queuedDeliveries('shop', 1))
      await jobQueue.add(queuedDeliveries('shop', 1))
      const worker = work(t, backend, [shop])
      await worker.got(2)
      t.same(worker.deliveries(), ['task-0', 'task-0'])
    })

    t.test('a job made by hand or by another version ends without harm', async t => {
      const shop = downstream('shop')
      const backend = await openTestBackend(t, where, ['shop'])
      const strange: unknown[] = [{}, 'text', [1, 2], [['task-1']], [['task-2', 'x']], [['good', 3], null]]
      // The types forbid these jobs. The queue itself accepts them.
      for (const data of strange) await backend.add('shop', [data as [string, number][]])
      const worker = work(t, backend, [shop])
      await worker.got(1)
      t.same(worker.deliveries(), ['good'])
      await until('the queue is empty', async () => (await backend.count('shop')) === 0)
    })

    t.test('a job whose run throws is out of the queue, and the worker goes on', async t => {
      const shop = downstream('shop')
      const backend = await openTestBackend(t, where, ['shop'])
      const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
      let first = true
      const worker = work(t, backend, [shop], () => {
        if (!first) return
        first = false
        throw new Error('a bug')
      })
      await jobQueue.add(queuedDeliveries('shop', 1))
      await worker.got(1)
      await jobQueue.add(queuedDeliveries('shop', 1, 1))
      await worker.got(2)
      t.same(worker.deliveries(), ['task-0', 'task-1'])
    })

    t.test('a stop waits for the jobs that run, and takes no more', async t => {
      const shop = downstream('shop', { concurrency: 1 })
      const backend = await openTestBackend(t, where, ['shop'])
      const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
      const releases: (() => void)[] = []
      let over = 0
      const worker = work(t, backend, [shop], async () => {
        await new Promise<void>(resolve => {
          releases.push(resolve)
        })
        over++
      })
      await jobQueue.add(queuedDeliveries('shop', 3))
      await worker.got(2) // one runs, and the next is ready
      const stopped = worker.stop()
      t.equal(over, 0)
      for (const release of releases) release()
      await stopped
      t.equal(over, 2)
      t.equal(await backend.count('shop'), 1, 'left for the next worker')
      const next = work(t, backend, [shop])
      await next.got(1)
      t.same(next.deliveries(), ['task-2'])
    })

    t.test('a full worker takes no more than it can place', async t => {
      const shop = downstream('shop', { concurrency: 10 })
      const backend = await openTestBackend(t, where, ['shop'])
      const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
      const releases: (() => void)[] = []
      const worker = work(
        t,
        backend,
        [shop],
        () =>
          new Promise(resolve => {
            releases.push(resolve)
          })
      )
      await jobQueue.add(queuedDeliveries('shop', 100))
      await worker.got(20)
      t.equal(await backend.count('shop'), 8, 'two jobs of ten are being placed')
      for (let i = 0; i < 10; i++) {
        await worker.got(Math.min(100, 20 + i * 10))
        releases[i]?.()
      }
      await worker.got(100)
      t.equal(worker.jobs.length, 10)
    })
  })
}

t.test('a queue that somebody else has limited: its worker rests, and goes on after the limit', async t => {
  const redis = await testRedis(t)
  if (!redis) return
  const prefix = ownPrefix()
  const shop = downstream('shop')
  const backend = await openTestBackend(t, { redisUrl: redis.url }, ['shop'], { prefix })
  const queue = new Queue('shop', { connection: { host: redis.host, port: redis.port }, prefix })
  t.teardown(() => queue.close())
  await queue.setGlobalRateLimit(1, 600_000)
  await backend.add('shop', [[['first', 1]], [['limited', 1]]])
  const worker = work(t, backend, [shop])
  await worker.got(1)
  t.ok((await workedOver(1_000)) < 500, 'no busy loop')
  t.same(worker.deliveries(), ['first'])
  await queue.removeGlobalRateLimit()
  await worker.got(2)
  t.same(worker.deliveries(), ['first', 'limited'])
})

t.test('a worker that died leaves its job: nobody runs it again, and it leaves the active list', async t => {
  const redis = await testRedis(t)
  if (!redis) return
  const prefix = 'stalled-' + process.pid
  const shop = downstream('shop')
  const backend = await openTestBackend(t, { redisUrl: redis.url }, ['shop'], { prefix })
  const jobQueue = openTestQueue(t, backend, [shop], undefined, patientMs)
  await jobQueue.add(queuedDeliveries('shop', 1))
  // This worker takes the job and then does nothing more, like a dead one.
  const dead = await backend.consumer('shop', { lockMs: 100, onError: () => {} })
  t.ok(await dead.take())
  await dead.close()
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  const connection = { host: redis.host, port: redis.port }
  const queue = new Queue('shop', { connection, prefix })
  t.teardown(() => queue.close())
  t.equal(await queue.getActiveCount(), 1)
  await until('the lock is over', async () => (await client.exists(`${prefix}:shop:1:lock`)) === 0)

  // A worker looks for stalled jobs at its start. The first look marks the job, the second removes it.
  for (const look of [1, 2]) {
    await client.del(`${prefix}:shop:stalled-check`)
    const worker = work(t, backend, [shop])
    if (look === 1)
      await until('it looked', async () => (await client.exists(`${prefix}:shop:stalled-check`)) === 1)
    else await until('it is gone', async () => (await client.exists(`${prefix}:shop:1`)) === 0)
    await worker.stop()
    t.same(worker.deliveries(), [])
  }
  t.same(await queue.getJobCounts('active', 'waiting', 'failed', 'completed'), {
    active: 0,
    waiting: 0,
    failed: 0,
    completed: 0
  })
})
