// The same service as a developer would write it from the manuals: insert, add a job with the payload, send, update.
// It loses a task if the process dies between the insert and the job; that is not measured here.
import { Queue, Worker } from 'bullmq'
import fastify from 'fastify'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import { Pool } from 'undici'
import { serve } from './child.ts'
import { createTable, jobOptions, queueName } from './job.ts'

interface Task {
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: { orderId: string }
}

const { DATABASE_URL = '', REDIS_URL = '', BENCH_SINK = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 10, onnotice: () => {} })
await createTable(sql)

const sink = new Pool(BENCH_SINK, { connections: 200 })
const queue = new Queue(queueName, { connection: new Redis(REDIS_URL) })
const worker = new Worker<Task>(
  queueName,
  async job => {
    const { taskNo, messageBody } = job.data
    const headers = { 'content-type': 'application/json', 'ackbox-task-no': taskNo }
    const answer = await sink.request({
      path: '/',
      method: 'POST',
      headers,
      body: JSON.stringify(messageBody)
    })
    await answer.body.dump()
    if (answer.statusCode !== 200) throw new Error(`HTTP ${answer.statusCode}`)
    await sql`update task set status = 1, attempts = attempts + 1, updated_at = now() where task_no = ${taskNo}`
  },
  { connection: new Redis(REDIS_URL, { maxRetriesPerRequest: null }), concurrency: 200 }
)
worker.on('error', err => console.error(err.message))

const app = fastify()
app.post<{ Body: Task }>('/tasks', async (request, reply) => {
  const { taskNo, messageCode, sceneType, messageBody } = request.body
  const rows = await sql`
    insert into task (task_no, message_code, scene_type, message_body)
    values (${taskNo}, ${messageCode}, ${sceneType}, ${sql.json(messageBody)})
    on conflict (task_no) do nothing returning id`
  if (rows.length === 0) return reply.code(200).send({ taskNo })
  await queue.add('task', request.body, jobOptions)
  return reply.code(201).send({ taskNo })
})
serve({ url: await app.listen({ host: '127.0.0.1', port: 0 }) }, () => {})
