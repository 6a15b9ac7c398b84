// The longest a caller waits for PostgreSQL.
import t from 'tap'
import { Unavailable } from '../../src/errors.ts'
import { prompt } from '../../src/flow/prompt.ts'
import { testDb } from '../support/postgres.ts'

const around = (): { away: number; setAway(): void } => ({
  away: 0,
  setAway() {
    this.away++
  }
})

t.test('what PostgreSQL answered while this process stood still counts', async t => {
  const { sql } = await testDb(t)
  const surroundings = around()
  await sql`select 1`
  const asked = prompt(surroundings, sql`select 1 as one from pg_sleep(1)`.execute())
  await new Promise(resolve => setTimeout(resolve, 200))
  // From an immediate the timers come next, before what can be read.
  await new Promise(resolve => setImmediate(resolve))
  for (const end = performance.now() + 2_500; performance.now() < end;);
  t.same([...(await asked)], [{ one: 1 }])
  t.equal(surroundings.away, 0)
})

t.test('who gets no answer hears so within 2 s', async t => {
  const { sql } = await testDb(t)
  const surroundings = around()
  const began = performance.now()
  await t.rejects(prompt(surroundings, sql`select pg_sleep(4)`.execute()), Unavailable)
  t.ok(performance.now() - began < 3_500, 'before the answer came')
  t.equal(surroundings.away, 1)
})
