// Invariants that must hold at every moment. They are checked on the rows, again and again.
import type { Test } from 'tap'
import type { Sql } from '../../src/db/pool.ts'
import { statusNumber } from '../../src/domain/types.ts'

/** The longest that anything may wait in these tests: their start times and receipt timeouts stay below it. */
const farthest = '1 hour 10 minutes'

/** Rows that break an invariant. One query, so that all rows are of the same moment. */
export async function broken(sql: Sql): Promise<{ rule: string; taskNo: string }[]> {
  const rows = await sql<{ rule: string; task_no: string }[]>`
    select 'SENDING without a clock, or with one too far away' as rule, t.task_no
    from delivery d join task t on t.id = d.task_id
    where d.status = 0 and (d.next_action_at is null or d.next_action_at > now() + ${farthest}::interval)
    union all
    select 'ended, and still has a clock or a phase', t.task_no
    from delivery d join task t on t.id = d.task_id
    where d.status <> 0 and (d.next_action_at is not null or d.phase is not null)
    union all
    select 'FAILED without an alarm', t.task_no
    from delivery d join task t on t.id = d.task_id
    where d.status = 2
      and not exists (
        select from alarm a where a.task_id = d.task_id and a.downstream = d.downstream and a.kind = 'FAILED')
    union all
    select 'an attempt on record that was never claimed', t.task_no
    from attempt a join delivery d using (task_id, downstream) join task t on t.id = d.task_id
    where a.attempt > d.attempt
    union all
    select 'a task without a delivery', t.task_no
    from task t where not exists (select from delivery d where d.task_id = t.id)`
  return rows.map(row => ({ rule: row.rule, taskNo: row.task_no }))
}

interface Fence {
  key: string
  attempt: number
  status: number
}

/**
 * Samples twice a second until `end`, which returns all broken rows, the deliveries whose attempt number fell, and those that
 * were HANDLED and no longer are: only an operator may repeat one. A sample is left out while the database is away.
 */
export function sampler(t: Test, sql: Sql): { end(): Promise<{ broken: unknown[]; samples: number }> } {
  const found: unknown[] = []
  const fences = new Map<string, Fence>()
  let samples = 0
  let over = false
  t.teardown(() => {
    over = true
  })
  async function sample(): Promise<void> {
    found.push(...(await broken(sql)))
    const rows = await sql<Fence[]>`select task_id || ' ' || downstream as key, attempt, status from delivery`
    for (const now of rows) {
      const before = fences.get(now.key) ?? now
      if (now.attempt < before.attempt) found.push({ rule: 'an attempt number fell', before, now })
      if (before.status === statusNumber.HANDLED && now.status !== before.status)
        found.push({ rule: 'no longer HANDLED', before, now })
      fences.set(now.key, now)
    }
    samples++
  }
  const running = (async () => {
    while (!over) {
      await sample().catch(() => {})
      await new Promise(resolve => setTimeout(resolve, 500))
    }
  })()
  return {
    async end() {
      over = true
      await running
      await sample()
      return { broken: found, samples }
    }
  }
}

/** Requests that a downstream received although the rows have no such attempt, and attempts that arrived twice. */
export async function unaccounted(
  sql: Sql,
  requests: readonly { headers: Record<string, unknown> }[]
): Promise<string[]> {
  const rows = await sql<{ task_no: string; attempt: number }[]>`
    select t.task_no, max(d.attempt) as attempt
    from task t join delivery d on d.task_id = t.id group by t.task_no`
  const claimed = new Map(rows.map(row => [row.task_no, row.attempt]))
  const seen = new Set<string>()
  const wrong: string[] = []
  for (const { headers } of requests) {
    const taskNo = String(headers['ackbox-task-no'])
    const attempt = Number(headers['ackbox-attempt'])
    const name = `${taskNo} attempt ${attempt}`
    if (attempt > (claimed.get(taskNo) ?? 0)) wrong.push(`${name} was never claimed`)
    if (seen.has(name)) wrong.push(`${name} came twice`)
    seen.add(name)
  }
  return wrong
}
