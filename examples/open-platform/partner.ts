// A partner that receives over HTTP and sends receipts: review, which is slow, and search.
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { receiver } from 'ackbox/consumer'

const {
  NAME = '',
  SLOW_MS = '',
  DATABASE_URL = '',
  SIGNING_SECRET = '',
  ACKBOX_URL = '',
  PORT = ''
} = process.env
const sql = postgres(DATABASE_URL, { max: 20 })
const partner = receiver({
  secrets: [SIGNING_SECRET],
  db: sql,
  consumer: NAME,
  url: ACKBOX_URL,
  // Slower work is answered with 202, and its receipt is sent when it is done.
  deadlineMs: 200
})

const server = createServer(
  partner.node(async (tx, task) => {
    const { material, title } = task.body as { material: number; title: string }
    await tx`insert into shown (task_no, material, title) values (${task.taskNo}, ${material}, ${title})`
    await sleep(Number(SLOW_MS))
  })
)
server.listen(Number(PORT), '127.0.0.1', () => console.log(`${NAME} is ready on ${PORT}`))
await partner.run({ pollMs: 200 })
