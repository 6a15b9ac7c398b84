// The environment of tests of whole processes: one PostgreSQL, perhaps one Redis, one downstream, and shared settings.
import path from 'node:path'
import type { Test } from 'tap'
import type { Sql } from '../../src/db/pool.ts'
import { testDb } from './postgres.ts'
import { ownRedis, type OwnRedis } from './redis.ts'
import { call, handlersDir, postUntilTaken, secret, settled, type Answer } from './service.ts'
import { sink, type Sink, type SinkOptions } from './sink.ts'

export interface Stage {
  sql: Sql
  databaseUrl: string
  downstream: Sink
  redis: OwnRedis | undefined
  /** Settings for each process. */
  env: Record<string, string>
}

/** Undefined: there is no Redis, and the test is skipped. */
export async function stage(
  t: Test,
  {
    redis: wanted = false,
    patient = false,
    ...options
  }: SinkOptions & { redis?: boolean; patient?: boolean } = {}
): Promise<Stage | undefined> {
  const redis = wanted ? await ownRedis(t) : undefined
  if (wanted && !redis) return undefined
  const { url, sql } = await testDb(t)
  const downstream = await sink(t, options)
  return {
    sql,
    databaseUrl: url,
    downstream,
    redis,
    env: {
      DATABASE_URL: url,
      SECRET: secret,
      AUTH: 'off',
      HANDLERS_DIR: patient ? path.resolve(import.meta.dirname, 'patient') : handlersDir,
      TEST_SINK: downstream.url,
      EGRESS_ALLOW: new URL(downstream.url).host,
      LEASE_MARGIN_MS: '1500',
      ...(redis ? { REDIS_URL: redis.url } : {})
    }
  }
}

export type Code = 'test.plain' | 'test.receipt'

/** Posts one task. Returns the answer. */
export async function post(
  url: string,
  taskNo: string,
  more: { messageCode?: Code; [member: string]: unknown } = {}
): Promise<Answer> {
  return call(`${url}/tasks`, { taskNo, messageCode: 'test.plain', messageBody: { n: 1 }, ...more })
}

/** As `post`, repeated until it is accepted: a busy machine sometimes answers 503. */
export const taken = (url: string, taskNo: string, more: object = {}): Promise<Answer> =>
  postUntilTaken(() => url, { taskNo, messageCode: 'test.plain', messageBody: { n: 1 }, ...more })

export const numbered = (name: string, n: number): string[] =>
  Array.from({ length: n }, (_, i) => `${name}-${i}`)

/** The number of deliveries by status and phase: `{ 'HANDLED': 3, 'SENDING WAITING': 1 }`. */
export async function tally(sql: Sql): Promise<Record<string, number>> {
  const rows = await sql<{ word: string; n: number }[]>`
    select concat_ws(' ', (array['DELETED', 'SENDING', 'HANDLED', 'FAILED'])[status + 2], phase) as word,
      count(*)::int as n
    from delivery
    group by 1
    order by 1`
  return Object.fromEntries(rows.map(row => [row.word, row.n]))
}

/**
 * Tasks that reached the downstream more often than `wanted`, although the rows have no timeout and no lost lease that explains it.
 * Those happen on a busy machine.
 */
export async function repeated(sql: Sql, downstream: Sink, wanted = 1): Promise<string[]> {
  const rows = await sql<{ task_no: string; excused: number }[]>`
    select t.task_no, (
        select count(*)::int from attempt a
        where a.task_id = t.id and (
          a.reason in ('timeout', 'connect_timeout')
          -- Its receipt did not arrive within the receiptTimeout of test.receipt: a repeat is correct then.
          or a.outcome = 'delivered' and exists (
            select from attempt b
            where b.task_id = a.task_id and b.downstream = a.downstream and b.attempt > a.attempt
              and b.started_at >= a.started_at + interval '3 s'
          )
        )
      ) + (select sum(d.lost)::int from delivery d where d.task_id = t.id) as excused
    from task t`
  return rows.filter(row => downstream.count(row.task_no) > wanted + row.excused).map(row => row.task_no)
}

/** The final status of the task. The request is repeated while the service does not answer, or dies while it answers. */
export async function statusAtLast(url: string, taskNo: string): Promise<unknown> {
  for (;;) {
    const answer = await settled(url, taskNo).catch(() => null)
    if (answer && answer.status < 500) return answer.body?.['status']
    await new Promise(resolve => setTimeout(resolve, 100))
  }
}
