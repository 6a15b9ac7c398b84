import { textArray } from './arrays.ts'
import type { Sql } from './pool.ts'

/** The business thing that a task is about. `unique`: of one messageCode no second task that says so may have it. */
export interface Biz {
  type: string
  key: string
  unique: boolean
}

/**
 * Of tasks that were not stored, though their numbers are free: whose business key another task has, and that one's taskNo. One
 * that is missing here was in the way and is gone by now.
 */
export async function findBizTaken<Task extends { messageCode: string; biz?: Biz | null }>(
  sql: Sql,
  tasks: readonly Task[]
): Promise<Map<Task, string>> {
  const asked = tasks.flatMap(task => (task.biz?.unique ? [{ task, biz: task.biz }] : []))
  if (asked.length === 0) return new Map()
  const rows = await sql<{ ord: number; task_no: string }[]>`
    select a.ord::int, t.task_no
    from unnest(
      ${textArray(asked.map(one => one.task.messageCode))}::text[], ${textArray(asked.map(one => one.biz.type))}::text[],
      ${textArray(asked.map(one => one.biz.key))}::text[]
    ) with ordinality as a (message_code, biz_type, biz_key, ord)
    join task t on t.message_code = a.message_code and t.biz_type = a.biz_type and t.biz_key = a.biz_key and t.unique_biz`
  const taken = new Map<Task, string>()
  for (const { ord, task_no } of rows) {
    const one = asked[ord - 1]
    if (one) taken.set(one.task, task_no)
  }
  return taken
}
