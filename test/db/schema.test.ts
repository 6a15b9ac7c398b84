import { randomUUID } from 'node:crypto'
import t from 'tap'
import { uuidv7 } from '../../src/domain/ids.ts'
import { alarmKinds, handledBys, phases, reasons, receiptResults } from '../../src/domain/types.ts'
import type { Sql } from '../../src/db/pool.ts'
import { testDb } from '../support/postgres.ts'

interface Row {
  status: number
  phase: string | null
  next_action_at: Date | null
  attempt: number
  tries_left: number
  reason: string | null
  handled_at: Date | null
  handled_by: string | null
}

const now = new Date()
const waiting: Row = {
  status: 0,
  phase: 'WAITING',
  next_action_at: now,
  attempt: 0,
  tries_left: 10,
  reason: null,
  handled_at: null,
  handled_by: null
}
const handled: Row = {
  ...waiting,
  status: 1,
  phase: null,
  next_action_at: null,
  handled_at: now,
  handled_by: 'send'
}
const failed: Row = { ...waiting, status: 2, phase: null, next_action_at: null, reason: 'SEND_EXHAUSTED' }
const deleted: Row = { ...failed, status: -1, reason: 'DELETED' }

const store = (sql: Sql, row: Row) =>
  sql`insert into delivery ${sql({ task_id: randomUUID(), downstream: 'warehouse', needs_receipt: false, ...row })}`

t.test('a delivery that no one could ever drive on cannot be stored', async t => {
  const { sql } = await testDb(t)
  const wrong: Record<string, [Row, string]> = {
    'SENDING without a clock': [{ ...waiting, next_action_at: null }, 'delivery_sending_has_clock'],
    'SENDING without a phase': [{ ...waiting, phase: null }, 'delivery_sending_has_phase'],
    'HANDLED with a clock': [{ ...handled, next_action_at: now }, 'delivery_sending_has_clock'],
    'HANDLED with a phase': [{ ...handled, phase: 'IN_FLIGHT' }, 'delivery_sending_has_phase'],
    'FAILED with a clock': [{ ...failed, next_action_at: now }, 'delivery_sending_has_clock'],
    'DELETED with a phase': [{ ...deleted, phase: 'WAITING' }, 'delivery_sending_has_phase'],
    'HANDLED by nobody': [{ ...handled, handled_by: null }, 'delivery_handled_has_time'],
    'HANDLED at no time': [{ ...handled, handled_at: null }, 'delivery_handled_has_time'],
    'FAILED for no reason': [{ ...failed, reason: null }, 'delivery_failed_has_reason'],
    'an unknown status': [{ ...failed, status: 3 }, 'delivery_status_check'],
    'an unknown phase': [{ ...waiting, phase: 'QUEUED' }, 'delivery_phase_check'],
    'an unknown reason': [{ ...failed, reason: 'BECAUSE' }, 'delivery_reason_check'],
    'handled by an unknown': [{ ...handled, handled_by: 'magic' }, 'delivery_handled_by_check'],
    'more tries than it had': [{ ...waiting, tries_left: -1 }, 'delivery_numbers_check']
  }
  for (const [what, [row, constraint]] of Object.entries(wrong)) {
    await t.rejects(store(sql, row), { code: '23514', constraint_name: constraint }, what)
  }
  for (const row of [waiting, handled, failed, deleted]) await store(sql, row)
  await t.rejects(
    sql`update delivery set status = 1 where status = 0`,
    { code: '23514' },
    'nor can one become so'
  )
})

t.test('every word of the glossary can be stored', async t => {
  const { sql } = await testDb(t)
  for (const phase of phases) await store(sql, { ...waiting, phase })
  for (const reason of reasons) await store(sql, { ...failed, reason })
  for (const handledBy of handledBys) await store(sql, { ...handled, handled_by: handledBy })
  for (const kind of alarmKinds) {
    await sql`insert into alarm (task_id, downstream, attempt, kind) values (${randomUUID()}, 'a', 1, ${kind})`
  }
  for (const result of receiptResults) {
    await sql`insert into receipt (task_id, downstream, attempt, result, applied)
              values (${uuidv7()}, 'a', 1, ${result}, true)`
  }
  await t.rejects(
    sql`insert into alarm (task_id, downstream, attempt, kind)
                      values (${randomUUID()}, 'a', 1, 'SHRUG')`,
    { code: '23514' }
  )
})

t.test('a task costs two indexes and a delivery three: each more is paid for on every task', async t => {
  const { sql } = await testDb(t)
  const rows = await sql<{ table: string; def: string }[]>`
    select tablename as table, indexdef as def from pg_indexes where tablename in ('task', 'delivery') order by indexname`
  t.same(
    rows.filter(row => row.table === 'task').map(row => shape(row.def)),
    [
      // Partial: they hold only tasks with a business key.
      '(biz_type, biz_key, id) WHERE (biz_type IS NOT NULL)',
      '(id)',
      '(task_no)',
      '(message_code, biz_type, biz_key) WHERE unique_biz'
    ]
  )
  t.same(
    rows.filter(row => row.table === 'delivery').map(row => shape(row.def)),
    [
      '(downstream, next_action_at) WHERE (status = 0)',
      '(downstream, task_id) WHERE (status = 2)',
      // Partial: they hold only deliveries with an orderingKey.
      "(downstream, ordering_key) WHERE ((\"position\" > 0) AND (phase = ANY (ARRAY['WAITING'::text, 'IN_FLIGHT'::text, 'AWAITING_RECEIPT'::text])))",
      '(task_id, downstream)',
      '(downstream, ordering_key, "position") WHERE (ordering_key IS NOT NULL)'
    ]
  )
  const [table] = await sql`select reloptions from pg_class where relname = 'delivery'`
  t.same(table?.['reloptions'], ['fillfactor=70'])
})

t.test('what was done stays in the audit, whoever would like it gone', async t => {
  const { sql } = await testDb(t)
  await sql`insert into audit (who, what) values ('root', 'tried')`
  await t.rejects(sql`update audit set who = 'nobody'`, /append-only/)
  await t.rejects(sql`delete from audit`, /append-only/)
})

function shape(def: string): string {
  return def.slice(def.indexOf('('))
}
