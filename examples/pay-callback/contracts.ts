// The merchant's contracts: signs the contract of a payment once, and only of one that is in the books.
import { createServer } from 'node:http'
import postgres from 'postgres'
import { receiver } from 'ackbox/consumer'

const { DATABASE_URL = '', SIGNING_SECRET = '', ACKBOX_URL = '', PORT = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 20 })
const contracts = receiver({ secrets: [SIGNING_SECRET], db: sql, consumer: 'contracts', url: ACKBOX_URL })

const server = createServer(
  contracts.node(async (tx, task) => {
    const { payment } = task.body as { payment: number }
    // In earnest it would refuse what is not booked. Here it signs all the same and writes down what it saw, so that nothing is hidden.
    await tx`
      insert into signed (payment, was_booked)
      values (${payment}, exists (select from booked where payment = ${payment}))`
  })
)
server.listen(Number(PORT), '127.0.0.1', () => console.log(`contracts is ready on ${PORT}`))
await contracts.run({ pollMs: 200 })
