// The merchant's contracts: signs the contract of a payment once, and only if the payment is booked.
import { createServer } from 'node:http'
import postgres from 'postgres'
import { receiver } from 'ackbox/consumer'

const { DATABASE_URL = '', SIGNING_SECRET = '', ACKBOX_URL = '', PORT = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 20 })
const contracts = receiver({ secrets: [SIGNING_SECRET], db: sql, consumer: 'contracts', url: ACKBOX_URL })

const server = createServer(
  contracts.node(async (tx, task) => {
    const { payment } = task.body as { payment: number }
    // In production it would refuse a payment that is not booked. Here it signs anyway and records `was_booked`, so that the check sees it.
    await tx`
      insert into signed (payment, was_booked)
      values (${payment}, exists (select from booked where payment = ${payment}))`
  })
)
server.listen(Number(PORT), '127.0.0.1', () => console.log(`contracts is ready on ${PORT}`))
await contracts.run({ pollMs: 200 })
