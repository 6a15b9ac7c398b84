// Takes long: npm run test:long.
import { EventEmitter, once } from 'node:events'
import { connect, createServer, type AddressInfo } from 'node:net'
import pg from 'pg'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { blackHole } from '../support/blackhole.ts'
import { emptyDb } from '../support/postgres.ts'
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

const unhandled: unknown[] = []
process.on('unhandledRejection', reason => unhandled.push(reason))
process.on('uncaughtException', error => unhandled.push(error))
t.afterEach(() => {
  if (unhandled.length > 0) throw new AggregateError(unhandled.splice(0), 'unhandled')
})
t.setTimeout(2_400_000)

async function service(t: Test, databaseUrl: string) {
  const log = recordingLog()
  const backend = await openTestBackend(t, { databaseUrl }, ['shop'], { log: log.log })
  const pings = pingsOf(backend)
  const jobQueue = openTestQueue(t, backend, [shop], log.log)
  const worker = work(t, backend, [shop], () => {}, log.log)
  let made = 0
  return {
    log,
    jobQueue,
    pings,
    worker,
    backend,
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

t.test('processes that start together on an empty database prepare the queue once', async t => {
  const url = await emptyDb(t)
  const backends = await Promise.all([1, 2, 3].map(() => openTestBackend(t, { databaseUrl: url }, ['shop'])))
  for (const backend of backends) await backend.add('shop', [[['task', 1]]])
  t.equal(await backends[0]?.count('shop'), 3)
})

t.test(
  'PostgreSQL ends every connection of ours, again and again: jobs flow again by themselves',
  async t => {
    const url = await emptyDb(t)
    const { well, worker } = await service(t, url)
    const sql = postgres(url, { max: 1, onnotice: () => {} })
    t.teardown(() => sql.end())
    await well()
    for (let round = 0; round < 3; round++) {
      let ended: number[] = []
      // The last delivery may have arrived over an old connection, before the first new connection is open.
      await until('there are connections to end', async () => {
        const rows = await sql<{ pid: number }[]>`
          select pid, pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and pid <> pg_backend_pid()`
        ended = rows.map(({ pid }) => pid)
        return ended.length > 0
      })
      const began = stopwatch(t)
      // Until then a delivery may still come over an old connection.
      await until('they have ended', async () => {
        const left = await sql`select from pg_stat_activity where pid in ${sql(ended)}`
        return left.length === 0
      })
      await well()
      t.comment(`back in ${Math.round(began())} ms`)
      t.ok(began() < 20_000)
    }
    await worker.stop()
  }
)

t.test('PostgreSQL behind a black hole: adds fail in 250 ms, and all comes back by itself', async t => {
  const url = await emptyDb(t)
  const target = new URL(url)
  const hole = await blackHole(t, { host: target.hostname, port: Number(target.port) })
  const through = new URL(url)
  through.hostname = '127.0.0.1'
  through.port = String(hole.port)
  const { well, jobQueue, pings } = await service(t, through.href)
  await well()
  hole.swallow()
  const began = stopwatch(t)
  t.same(await jobQueue.add(queuedDeliveries('shop', 1, 1000)), queuedDeliveries('shop', 1, 1000))
  t.ok(began() < 1_000, `${began()} ms`)
  await pings.more(2)
  t.equal(jobQueue.room('shop'), 0)
  hole.heal()
  const back = stopwatch(t)
  await well()
  t.comment(`back in ${Math.round(back())} ms`)
  t.ok(back() < 30_000)
})

t.test('a stop in a black hole ends in time', async t => {
  const url = await emptyDb(t)
  const target = new URL(url)
  const hole = await blackHole(t, { host: target.hostname, port: Number(target.port) })
  const through = new URL(url)
  through.hostname = '127.0.0.1'
  through.port = String(hole.port)
  const { well, worker, jobQueue, backend } = await service(t, through.href)
  await well()
  hole.swallow()
  await jobQueue.add(queuedDeliveries('shop', 1))
  const began = stopwatch(t)
  await worker.stop()
  await jobQueue.stop()
  await backend.close()
  t.ok(began() < 20_000, `${began()} ms`)
  hole.heal()
})

t.test('a start does not wait for a session that reads the tables of the queue, as pg_dump does', async t => {
  const url = await emptyDb(t)
  await openTestBackend(t, { databaseUrl: url }, [])
  const dump = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => dump.end())
  await dump`begin`
  await dump`lock table bullmq.migration in access share mode`
  t.ok(await openTestBackend(t, { databaseUrl: url }, ['shop']))
})

t.test('a start that waits for locks on the tables of the queue ends with what to do', async t => {
  const url = await emptyDb(t)
  await openTestBackend(t, { databaseUrl: url }, [])
  const other = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => other.end())
  await other`begin`
  await other`lock table bullmq.migration`
  await t.rejects(openTestBackend(t, { databaseUrl: url }, ['shop']), {
    name: 'QueueServerError',
    message: /schema bullmq/
  })
})

t.test('a connection that falls silent at its LISTEN is given up: the worker takes jobs again', async t => {
  const url = await emptyDb(t)
  const target = new URL(url)
  let silenced = 0
  const proxy = createServer(client => {
    const server = connect(Number(target.port), target.hostname)
    let isSilent = false
    client.on('data', data => {
      if (silenced === 0 && /^LISTEN bullmq_jobs/m.test(data.toString('latin1')) && data.length < 1_000) {
        isSilent = true
        silenced++
      }
      if (!isSilent) server.write(data)
    })
    server.on('data', data => client.write(data))
    for (const [one, other] of [
      [client, server],
      [server, client]
    ] as const) {
      one.on('error', () => {})
      one.on('close', () => other.destroy())
    }
  }).listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  t.teardown(() => proxy.close())
  const through = new URL(url)
  through.hostname = '127.0.0.1'
  through.port = String((proxy.address() as AddressInfo).port)
  const { well } = await service(t, through.href)
  await until('the worker listens', () => silenced === 1)
  await well()
})

t.test('a connection that the server ends at its very start does not end the process', async t => {
  const real = await emptyDb(t)
  // AuthenticationOk, ReadyForQuery and a FATAL in one packet: https://www.postgresql.org/docs/17/protocol-message-formats.html
  const fatal = Buffer.from('SFATAL\0C57P01\0Mterminating connection\0\0')
  const length = Buffer.alloc(4)
  length.writeInt32BE(4 + fatal.length)
  const welcome = Buffer.from('R\0\0\0\x08\0\0\0\0Z\0\0\0\x05IE', 'latin1')
  const server = createServer(socket => {
    socket.on('error', () => {})
    socket.once('data', () => socket.end(Buffer.concat([welcome, length, fatal])))
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  let url = real
  let move = (): void => {}
  const backend = await openTestBackend(t, {}, ['shop'], {
    database: {
      url: () => url,
      onMove: listener => {
        move = listener
        return () => {}
      }
    }
  })
  url = `postgres://x:x@127.0.0.1:${(server.address() as AddressInfo).port}/x`
  move()
  await t.rejects(backend.consumer('shop', { lockMs: 60_000, onError: () => {} }))
})

t.test('a consumer that is closed leaves nothing at the pool', async t => {
  const pools = new Set<pg.Pool>()
  // The pool is inside of the backend.
  t.intercept(pg.Pool.prototype, 'on', {
    value(this: pg.Pool, ...listener: Parameters<pg.Pool['on']>) {
      pools.add(this)
      return EventEmitter.prototype.on.apply(this, listener)
    }
  })
  const backend = await openTestBackend(t, { databaseUrl: await emptyDb(t) }, ['shop'])
  const listeners = () => [...pools].map(pool => pool.listenerCount('error'))
  const before = listeners()
  t.equal(before.length, 1)
  for (let n = 0; n < 3; n++) {
    const consumer = await backend.consumer('shop', { lockMs: 60_000, onError: () => {} })
    t.notSame(listeners(), before)
    await consumer.close()
  }
  t.same(listeners(), before)
})

t.test('an idle service is quiet', async t => {
  const url = await emptyDb(t)
  const names = Array.from({ length: 10 }, (_, i) => downstream(`shop-${i}`))
  const backend = await openTestBackend(
    t,
    { databaseUrl: url },
    names.map(one => one.name)
  )
  openTestQueue(t, backend, names)
  work(t, backend, names)
  await new Promise(resolve => setTimeout(resolve, 1500))
  const used = (await workedOver(4_000)) / 4
  t.comment(`${used} ms of CPU a second, ten queues`)
  t.ok(used < 150) // a busy loop is 1000; a loaded machine inflates it
})
