import type { Sql } from './pool.ts'
import type { attempt, Row } from './schema.ts'

/** The recorded attempts of a delivery before this one. */
interface EarlierAttempts {
  attempts: Pick<Row<typeof attempt>, 'outcome' | 'reason' | 'status_code'>[]
  /** Attempts that left no record: their lease was lost, or they were released unsent. */
  unrecorded: number
}

/**
 * The attempts of a delivery before `attempt`. Those of earlier rounds count only if the last round ended FAILED and stayed so:
 * `repeat` of a HANDLED delivery is a wish to send it again.
 */
export async function findEarlierAttempts(
  sql: Sql,
  { taskId, downstream, attempt }: { taskId: string; downstream: string; attempt: number }
): Promise<EarlierAttempts> {
  const rows = await sql<(EarlierAttempts['attempts'][number] & { first: number })[]>`
    with round as (
      select case when exists (
          select from alarm a
          where a.task_id = d.task_id and a.downstream = d.downstream and a.attempt = d.round_from - 1 and a.kind = 'FAILED'
        ) and not exists (
          select from receipt r
          where r.task_id = d.task_id and r.downstream = d.downstream and r.applied and r.result = 'HANDLED'
        ) then 1 else d.round_from end as first
      from delivery d
      where d.task_id = ${taskId} and d.downstream = ${downstream}
    )
    select round.first, a.outcome, a.reason, a.status_code
    from round left join lateral (
      select * from attempt a
      where a.task_id = ${taskId} and a.downstream = ${downstream} and a.attempt >= round.first and a.attempt < ${attempt}
    ) a on true`
  const attempts = rows.filter(row => row.outcome !== null)
  const first = rows[0]?.first ?? attempt
  return { attempts, unrecorded: attempt - first - attempts.length }
}
