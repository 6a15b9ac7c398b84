import t from 'tap'
import { countOutcomes } from '../../src/db/operation-lists.ts'
import { uuidv7 } from '../../src/domain/ids.ts'
import { testDb } from '../support/postgres.ts'

t.test('how a bulk redelivery stands is counted of all that it took, not of the first 10,000', async t => {
  const { sql, reads } = await testDb(t)
  const id = uuidv7()
  const task = (n: string) =>
    sql`('00000000-0000-7000-8000-' || lpad(to_hex(${sql.unsafe(n)}), 12, '0'))::uuid`
  await sql`
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, handled_at, handled_by)
    select ${task('n')}, 'ads', 1, 2, 9, false, now(), 'send' from generate_series(1, 12000) n`
  await sql`
    insert into operation_delivery (operation_id, task_id, downstream, attempt, result)
    select ${id}, ${task('n')}, 'ads', 1, case when n = 12000 then 'skipped' else 'redelivered' end
    from generate_series(1, 12000) n`
  const ends = () => countOutcomes(reads, { id, redelivered: 11_999, state: 'DONE' })
  t.same(await ends(), { SENDING: 0, FAILED: 0 })
  t.same(await countOutcomes(reads, { id, redelivered: 11_999, state: 'RUNNING' }), {}, 'later, at its end')
  await sql`update delivery set status = 2, reason = 'REFUSED' where task_id = ${task('11999')}`
  await sql`
    update delivery set status = 0, phase = 'WAITING', next_action_at = now() where task_id = ${task('11998')}`
  await sql`update delivery set status = 2, reason = 'REFUSED' where task_id = ${task('12000')}`
  t.same(await ends(), { SENDING: 1, FAILED: 1 }, 'what it skipped is no part of it')

  await sql`delete from operation_delivery where task_id < ${task('11900')}`
  await sql`update delivery set status = -1, reason = 'DELETED' where task_id = ${task('11950')}`
  t.same(await countOutcomes(reads, { id, redelivered: 100, state: 'DONE' }), {
    HANDLED: 97,
    SENDING: 1,
    FAILED: 1,
    DELETED: 1
  })
})
