// The merchant's order system: receives payments, and books each once.
import { createServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { receiver } from 'ackbox/consumer'

const { DATABASE_URL = '', SIGNING_SECRET = '', ACKBOX_URL = '', PORT = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 20 })
const payments = receiver({
  secrets: [SIGNING_SECRET],
  db: sql,
  consumer: 'orders',
  url: ACKBOX_URL,
  // Slower work is answered with 202, and its receipt is sent when it is done.
  deadlineMs: 200
})

const server = createServer(
  payments.node(async (tx, task) => {
    const { payment, cents } = task.body as { payment: number; cents: number }
    await tx`insert into booked (payment, cents) values (${payment}, ${cents})`
    // Some are slow: their receipt is sent after the answer.
    if (payment % 3 === 0) await sleep(400)
  })
)
server.listen(Number(PORT), '127.0.0.1', () => console.log(`orders is ready on ${PORT}`))
await payments.run({ pollMs: 200 })
