// The storage of the textbook service for a task: a row, and a job with the payload.
import { Queue } from 'bullmq'
import { Redis } from 'ioredis'
import postgres, { type Sql } from 'postgres'
import type { Filling } from './fill.ts'
import { bodyOf } from './posted.ts'
import { inChunks } from './chunks.ts'

export const queueName = 'textbook'

export const jobOptions = {
  attempts: 10,
  backoff: { type: 'exponential', delay: 10_000 },
  removeOnComplete: { count: 0 }
}

export async function createTable(sql: Sql): Promise<void> {
  await sql`
    create table if not exists task (
      id bigserial primary key, task_no text not null unique, message_code text not null, scene_type text not null,
      message_body jsonb not null, status smallint not null default 0, attempts int not null default 0,
      created_at timestamptz not null default now(), updated_at timestamptz not null default now())`
  await sql`create index if not exists task_sending on task (updated_at) where status = 0`
}

/** A backlog of the textbook service: rows that are not sent yet, each with its job. */
export async function fillJobs({ url, run, count, signal }: Filling, redisUrl: string): Promise<void> {
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  const connection = new Redis(redisUrl)
  const queue = new Queue(queueName, { connection })
  try {
    await createTable(sql)
    await inChunks('jobs', { count, size: 1_000, signal }, async (from, to) => {
      const bodies = Array.from({ length: to - from }, (_, n) => bodyOf(`${run}-${from + n}`, from + n))
      await sql`
        insert into task (task_no, message_code, scene_type, message_body)
        select body ->> 'taskNo', body ->> 'messageCode', body ->> 'sceneType', body -> 'messageBody'
        from unnest(${bodies}::text[]::jsonb[]) as body`
      await queue.addBulk(
        bodies.map(body => ({ name: 'task', data: JSON.parse(body) as object, opts: jobOptions }))
      )
    })
    await sql`vacuum analyze`
    await sql`checkpoint`
  } finally {
    await queue.close()
    connection.disconnect()
    await sql.end({ timeout: 5 })
  }
}
