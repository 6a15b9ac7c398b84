import { randomUUID } from 'node:crypto'
import type { Sql } from '../../../src/db/pool.ts'
import { standing } from '../../support/rows.ts'

const at = { attempt: 1, triesLeft: 9, lost: 0, roundFrom: 1 }

/** Rows in the tables of the first migration, a delivery in each state. */
export async function everyState(sql: Sql): Promise<void> {
  for (const state of ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'HANDLED', 'FAILED', 'DELETED'] as const) {
    const waiting = state === 'WAITING'
    const id = await standing(
      sql,
      { state, ...at, attempt: waiting ? 0 : 1 },
      {
        downstream: 'plain',
        messageCode: 'test.plain',
        taskNo: state,
        inMs: 3_600_000,
        needsReceipt: state === 'AWAITING_RECEIPT'
      }
    )
    if (waiting) continue
    await sql`
      insert into attempt (task_id, downstream, attempt, outcome, reason, status_code, answer, ms, node, started_at)
      values (${id}, 'plain', 1, 'failed', 'HTTP 503', 503, ${Buffer.from([0, 255])}, 12, 'old', now())`
    await sql`
      insert into receipt (task_id, downstream, attempt, result, data, applied)
      values (${id}, 'plain', 1, 'PROCESSING', '{"n":1}', false)`
    if (state === 'FAILED')
      await sql`insert into alarm (task_id, downstream, attempt, kind) values (${id}, 'plain', 1, 'FAILED')`
  }
  await sql`insert into downstream (name, paused_at, paused_by) values ('elsewhere', now(), 'somebody')`
  await sql`insert into api_key (id, name, hash, scopes) values (${randomUUID()}, 'shop', 'hash', '{tasks:write}')`
  await sql`insert into audit (who, what, target) values ('somebody', 'pause', 'elsewhere')`
}
