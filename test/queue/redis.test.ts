// Takes long: npm run test:long.
import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import { Redis } from 'ioredis'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import type { QueuedClaim } from '../../src/delivery/enqueue.ts'
import { runIdOf } from '../../src/cli/doctor/redis.ts'
import { QueueServerError, serverProblem } from '../../src/queue/redis.ts'
import { blackHole } from '../support/blackhole.ts'
import { only } from '../support/only.ts'
import { ownRedis } from '../support/redis.ts'
import { sentinels } from '../support/redis-group.ts'
import { stopwatch, workedOver } from '../support/stopwatch.ts'
import {
  downstream,
  queuedDeliveries,
  openTestBackend,
  openTestQueue,
  pingsOf,
  recordingLog,
  until,
  work
} from './setup.ts'

const shop = downstream('shop')

// Under every fault, no error of Ackbox stays unhandled.
const unhandled: unknown[] = []
process.on('unhandledRejection', reason => unhandled.push(reason))
process.on('uncaughtException', error => unhandled.push(error))
t.afterEach(() => {
  if (unhandled.length > 0) throw new AggregateError(unhandled.splice(0), 'unhandled')
})
t.setTimeout(2_400_000)

/** A queue and its workers, connected as in a service. */
async function service(t: Test, redisUrl: string) {
  const log = recordingLog()
  const backend = await openTestBackend(t, { redisUrl }, ['shop'], { log: log.log })
  const pings = pingsOf(backend)
  const jobQueue = openTestQueue(t, backend, [shop], log.log)
  const worker = work(t, backend, [shop], () => {}, log.log)
  let made = 0
  return {
    log,
    backend,
    jobQueue,
    pings,
    worker,
    one: (): QueuedClaim[] => queuedDeliveries('shop', 1, made++),
    /** Adds one delivery after the other until a worker gets one. */
    well: async (ms = 60_000) => {
      const before = worker.deliveries().length
      await until(
        'a delivery comes through again',
        async () => {
          if (jobQueue.room('shop') > 0) await jobQueue.add(queuedDeliveries('shop', 1, made++))
          return worker.deliveries().length > before
        },
        ms
      )
    }
  }
}

t.test('Redis is killed and comes back empty: jobs flow again by themselves', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const { jobQueue, worker, one, well, log } = await service(t, redis.url)
  await well()
  for (let round = 0; round < 3; round++) {
    await redis.kill()
    const began = stopwatch(t)
    const delivery = one()
    t.same(await jobQueue.add(delivery), delivery)
    t.ok(began() < 1_000)
    await until('no room', () => jobQueue.room('shop') === 0)
    await redis.start()
    const back = stopwatch(t)
    await well()
    t.ok(back() < 10_000, `back in ${back()} ms`)
  }
  t.ok(log.lines.filter(line => line.level === 'warn').length < 10, 'a few lines, not a flood')
  await worker.stop()
})

t.test('a long outage: no flood of lines, no busy loop', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const { jobQueue, well, log } = await service(t, redis.url)
  await well()
  await redis.kill()
  await until('no room', () => jobQueue.room('shop') === 0)
  const used = await workedOver(2_000)
  t.ok(used < 400, `${used} ms of CPU in two seconds`)
  t.ok(log.lines.length < 10, JSON.stringify(log.lines))
  await redis.start()
  await well()
})

for (const how of ['heal', 'healForNewOnly'] as const) {
  t.test(`Redis behind a black hole (${how}): adds fail in 250 ms, and all comes back by itself`, async t => {
    const redis = await ownRedis(t)
    if (!redis) return
    const hole = await blackHole(t, redis)
    const { jobQueue, pings, one, well } = await service(t, `redis://127.0.0.1:${hole.port}`)
    await well()
    hole.swallow()
    const began = stopwatch(t)
    const delivery = one()
    t.same(await jobQueue.add(delivery), delivery)
    t.ok(began() < 1_000, `${began()} ms`)
    t.equal(jobQueue.room('shop'), 0)
    await pings.more(6)
    t.equal(jobQueue.room('shop'), 0)
    hole[how]()
    const back = stopwatch(t)
    await well()
    t.comment(`back in ${Math.round(back())} ms`)
    t.ok(back() < 20_000)
  })
}

t.test('a stop in a black hole ends in time', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const hole = await blackHole(t, redis)
  const { jobQueue, one, well, worker, backend } = await service(t, `redis://127.0.0.1:${hole.port}`)
  await well()
  hole.swallow()
  await jobQueue.add(one())
  const began = stopwatch(t)
  await worker.stop()
  await jobQueue.stop()
  await backend.close()
  t.ok(began() < 15_000, `${began()} ms`)
})

t.test('FLUSHALL and SCRIPT FLUSH in full work: what was there is gone, what comes next flows', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const { jobQueue, worker, well } = await service(t, redis.url)
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  await well()
  const adding = Promise.all(
    Array.from({ length: 20 }, (_, i) => jobQueue.add(queuedDeliveries('shop', 200, 1000 + i * 200)))
  )
  await client.flushall()
  // On a busy machine some adds may run out of time. They return their deliveries, which are added again.
  let left = (await adding).flat()
  await until('all are taken', async () => (left = await jobQueue.add(left)).length === 0)
  await well()
  await client.script('FLUSH')
  await well()
  const before = worker.deliveries().length
  await until('bulks too', async () => (await jobQueue.add(queuedDeliveries('shop', 200, 9000))).length === 0)
  await worker.got(before + 200)
})

t.test('Redis out of memory: adds are refused, no room; memory again: it flows', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const { jobQueue, one, well, log } = await service(t, redis.url)
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  await well()
  await client.config('SET', 'maxmemory', '1')
  const delivery = one()
  t.same(await jobQueue.add(delivery), delivery)
  const used = await workedOver(1_500)
  t.equal(jobQueue.room('shop'), 0, 'it answers, but takes nothing')
  t.ok(used < 400, `${used} ms of CPU`)
  t.ok(log.lines.length < 10, JSON.stringify(log.lines))
  await client.config('SET', 'maxmemory', '0')
  await well()
})

t.test(
  'jobs wait while Redis is out of memory: the worker does not spin, and takes them afterwards',
  async t => {
    const redis = await ownRedis(t)
    if (!redis) return
    const log = recordingLog()
    const backend = await openTestBackend(t, { redisUrl: redis.url }, ['shop'], { log: log.log })
    const jobQueue = openTestQueue(t, backend, [shop], log.log)
    const client = new Redis(redis.url)
    t.teardown(() => client.disconnect())
    await until('200 are added', async () => (await jobQueue.add(queuedDeliveries('shop', 200))).length === 0)
    await client.config('SET', 'maxmemory', '1')
    const worker = work(t, backend, [shop], () => {}, log.log)
    const used = await workedOver(1_500)
    t.ok(used < 400, `${used} ms of CPU`)
    t.ok(log.lines.length < 10, JSON.stringify(log.lines))
    await client.config('SET', 'maxmemory', '0')
    await worker.got(200)
  }
)

t.test('a cluster loses a slot while a worker waits for a job: jobs flow again when it is back', async t => {
  const node = await ownRedis(
    t,
    '--cluster-enabled',
    'yes',
    '--cluster-port',
    String(await freePort()),
    '--cluster-announce-ip',
    '127.0.0.1'
  )
  if (!node) return
  const client = new Redis(node.url)
  t.teardown(() => client.disconnect())
  await client.call('CLUSTER', 'ADDSLOTSRANGE', '0', '16383')
  const isUp = async () => (await client.cluster('INFO')).includes('cluster_state:ok')
  await until('the cluster is up', isUp)
  const url = `${node.url},${node.host}:${node.port}`
  const { backend, well } = await service(t, url)
  await well()
  const slot = await client.cluster('KEYSLOT', 'a key of somebody else')
  // An idle worker blocks for two seconds. BullMQ gives its wait up after three, and connects anew, to a cluster that is down.
  await sleep(1_600)
  await client.call('CLUSTER', 'DELSLOTS', slot)
  await until('the cluster is down', async () => !(await isUp()))
  await t.rejects(runIdOf(url), { message: 'the cluster is down' })
  // BullMQ connects anew in this time. Without it the test would miss the fault, and not fail.
  await sleep(4_000)
  await client.call('CLUSTER', 'ADDSLOTS', slot)
  await well(120_000)
  t.ok(backend.up())
})

t.test('a Sentinel that does not answer: the next one is asked', async t => {
  const group = await sentinels(t)
  if (!group) return
  const frozen = createServer(socket => socket.on('error', () => {}).resume()).listen(0, '127.0.0.1')
  await once(frozen, 'listening')
  t.teardown(() => frozen.close())
  const { port } = frozen.address() as AddressInfo
  const { well } = await service(t, group.url.replace('://', `://127.0.0.1:${port},`))
  await well()
})

t.test('the primary becomes a replica and a primary again', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const { jobQueue, pings, one, well } = await service(t, redis.url)
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  await well()
  await client.replicaof('127.0.0.1', String(await freePort()))
  const delivery = one()
  t.same(await jobQueue.add(delivery), delivery)
  await pings.more(2)
  t.equal(jobQueue.room('shop'), 0)
  await client.replicaof('NO', 'ONE')
  await well()
})

t.test('a start without Redis ends with the line that mends it', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  await redis.kill()
  await t.rejects(openTestBackend(t, { redisUrl: redis.url }, ['shop']), {
    name: 'QueueServerError',
    message:
      /^Redis at 127\.0\.0\.1:\d+ cannot be reached: check REDIS_URL, and that the server is up \(connect ECONNREFUSED .*\)$/
  })
})

t.test('a database that the server does not have ends the start: jobs would go to database 0', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  await t.rejects(openTestBackend(t, { redisUrl: `${redis.url}/99` }, ['shop']), {
    name: 'QueueServerError',
    message: /refuses the database in REDIS_URL \(ERR DB index is out of range\)/
  })
})

t.test('a wrong password ends the start with the line that mends it', async t => {
  const redis = await ownRedis(t, '--requirepass', 'right')
  if (!redis) return
  const wrong = redis.url.replace('redis://', 'redis://:wrong@')
  await t.rejects(openTestBackend(t, { redisUrl: wrong }, ['shop']), QueueServerError)
  await t.rejects(openTestBackend(t, { redisUrl: redis.url }, ['shop']), {
    message: /^Redis at 127\.0\.0\.1:\d+ refuses the user or password of REDIS_URL/
  })
  const right = redis.url.replace('redis://', 'redis://:right@')
  await t.resolves(openTestBackend(t, { redisUrl: right }, ['shop']))
})

t.test('a Redis that may throw keys away is worked with, and warned of', async t => {
  const redis = await ownRedis(t, '--maxmemory', '100mb', '--maxmemory-policy', 'allkeys-lru')
  if (!redis) return
  const { log } = await service(t, redis.url)
  t.match(
    log.lines.filter(line => line.level === 'warn'),
    only({ fields: { policy: 'allkeys-lru' } })
  )
})

t.test('a Redis before 6.2 is refused in one line', async t => {
  t.match(serverProblem('redis_version:6.0.16\r\nx:1', 'h:1'), /^Redis at h:1 is 6\.0\.16: Ackbox needs 6\.2/)
  t.match(serverProblem('redis_version:5.0.7\r\n', 'h:1'), /6\.2/)
  for (const fine of ['6.2.0', '6.2.14', '7.0.15', '7.2.4', '8.0.1', '10.0.0']) {
    t.equal(serverProblem(`# Server\r\nredis_version:${fine}\r\n`, 'h:1'), undefined, fine)
  }
})

t.test('an idle service is quiet', async t => {
  const redis = await ownRedis(t)
  if (!redis) return
  const names = Array.from({ length: 10 }, (_, i) => downstream(`shop-${i}`))
  const backend = await openTestBackend(
    t,
    { redisUrl: redis.url },
    names.map(one => one.name)
  )
  openTestQueue(t, backend, names)
  work(t, backend, names)
  await new Promise(resolve => setTimeout(resolve, 500))
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  const commands = async () => Number(/total_commands_processed:(\d+)/.exec(await client.info('stats'))?.[1])
  const before = await commands()
  const used = (await workedOver(4_000)) / 4
  const perSecond = ((await commands()) - before) / 4
  t.comment(`${perSecond} commands/s, ${used} ms of CPU a second, ten queues`)
  t.ok(perSecond < 200)
  t.ok(used < 150) // a busy loop is 1000; a loaded machine inflates it
})
