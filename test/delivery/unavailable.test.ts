// The longest a caller waits for PostgreSQL.
import t from 'tap'
import { Unavailable } from '../../src/runtime/errors.ts'
import { orUnavailable } from '../../src/delivery/unavailable.ts'
import { testDb } from '../support/postgres.ts'
import { stopwatch } from '../support/stopwatch.ts'

const around = (): { away: number; setDatabaseAway(): void } => ({
  away: 0,
  setDatabaseAway() {
    this.away++
  }
})

t.test('what PostgreSQL answered while this process stood still counts', async t => {
  const { sql } = await testDb(t)
  const cluster = around()
  await sql`select 1`
  const asked = orUnavailable(cluster, sql`select 1 as one from pg_sleep(1)`.execute())
  await new Promise(resolve => setTimeout(resolve, 200))
  // After an immediate, Node runs due timers before it reads sockets.
  await new Promise(resolve => setImmediate(resolve))
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2_500)
  t.same([...(await asked)], [{ one: 1 }])
  t.equal(cluster.away, 0)
})

t.test('who gets no answer hears so within 2 s', async t => {
  const { sql } = await testDb(t)
  const cluster = around()
  const began = stopwatch(t)
  await t.rejects(orUnavailable(cluster, sql`select pg_sleep(4)`.execute()), Unavailable)
  t.ok(began() < 3_500, 'before the answer came')
  t.equal(cluster.away, 1)
})

t.test(
  'the database is not away if the row may be locked, nor if a statement ran into its limit',
  async t => {
    const { sql } = await testDb(t)
    const cluster = around()
    const slow = sql`select pg_sleep(3)`.execute()
    await t.rejects(orUnavailable(cluster, slow, { mayBeLocked: true }), Unavailable)
    await slow
    for (const code of ['57014', '55P03']) {
      const failed = Promise.reject(Object.assign(new Error(code), { code }))
      await t.rejects(orUnavailable(cluster, failed), Unavailable)
    }
    t.equal(cluster.away, 0)
    const lost = Promise.reject(Object.assign(new Error('lost'), { code: 'CONNECTION_CLOSED' }))
    await t.rejects(orUnavailable(cluster, lost, { mayBeLocked: true }), Unavailable)
    t.equal(cluster.away, 1)
  }
)
