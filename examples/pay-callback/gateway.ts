// The payment gateway: it stores a payment, and in the same transaction the two tasks that follow from it.
import { createServer } from 'node:http'
import postgres from 'postgres'
import { outbox } from 'ackbox/producer'

const { DATABASE_URL = '', PORT = '' } = process.env
const sql = postgres(DATABASE_URL, { max: 5 })

/** A repeat has no effect: the buyer repeats a request that was not answered. */
async function pay(payment: number, cents: number): Promise<void> {
  await sql.begin(async tx => {
    const taken = await tx`
      insert into payment (id, cents) values (${payment}, ${cents}) on conflict do nothing returning id`
    if (taken.length === 0) return
    const [paid, sign] = [`payment-${payment}-paid`, `payment-${payment}-sign`]
    // With one ordering key the relay posts the first row before the second, which names it in `after`.
    const orderingKey = `payment-${payment}`
    await outbox(tx, {
      taskNo: paid,
      messageCode: 'payment.paid',
      messageBody: { payment, cents },
      orderingKey
    })
    await outbox(tx, {
      taskNo: sign,
      messageCode: 'payment.sign',
      messageBody: { payment },
      orderingKey,
      after: [paid]
    })
  })
}

const server = createServer((request, response) => {
  const [, payment, cents] = /^\/payments\/(\d+)\/(\d+)$/.exec(request.url ?? '') ?? []
  if (payment === undefined) return void response.writeHead(404).end()
  pay(Number(payment), Number(cents)).then(
    () => response.writeHead(200, { 'content-type': 'application/json' }).end('{"paid":true}'),
    (err: unknown) => {
      console.error(err)
      response.writeHead(500).end()
    }
  )
})
server.listen(Number(PORT), '127.0.0.1', () => console.log(`gateway is ready on ${PORT}`))
