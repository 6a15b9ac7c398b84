import { texts } from './literal.ts'
import type { Sql } from './open.ts'
import { statusWord } from './view.ts'
import type { Status } from '../task/task.ts'

/** A task's deliveries as an operator's act needs them. */
export interface StandingTask {
  id: string
  messageCode: string
  retryTimes: number | null
  deliveries: { downstream: string; status: Status; attempt: number; expired: boolean }[]
}

/** null: no such task. */
export async function readStanding(sql: Sql, taskNo: string): Promise<StandingTask | null> {
  const rows = await sql<
    {
      id: string
      message_code: string
      retry_times: number | null
      downstream: string
      status: number
      attempt: number
      expired: boolean
    }[]
  >`
    select t.id, t.message_code, t.retry_times, d.downstream, d.status, d.attempt,
      coalesce(d.deliver_before <= now(), false) as expired
    from task t join delivery d on d.task_id = t.id
    where t.task_no = ${taskNo}
    order by d.downstream`
  const [first] = rows
  return first
    ? {
        id: first.id,
        messageCode: first.message_code,
        retryTimes: first.retry_times,
        deliveries: rows.map(row => ({
          downstream: row.downstream,
          status: statusWord(row.status),
          attempt: row.attempt,
          expired: row.expired
        }))
      }
    : null
}

/** The taskNos among these whose every delivery has come to rest, and those that do not exist. */
export async function findSettled(sql: Sql, taskNos: readonly string[]): Promise<Set<string>> {
  const rows = await sql<{ task_no: string }[]>`
    select w.task_no
    from unnest(${texts(taskNos)}::text[]) as w (task_no)
    where not exists (
      select from task t join delivery d on d.task_id = t.id
      where t.task_no = w.task_no and d.status = 0
    )`
  return new Set(rows.map(row => row.task_no))
}
