// The orders: an order is placed on frozen stock, and can be paid while the stock is still frozen.
import Fastify from 'fastify'
import pg from 'pg'
import { fetch } from 'undici'
import { fromPg, receiver, Retry, type ReceivedTask } from 'ackbox/consumer'
import { outbox } from 'ackbox/producer'
import { placed, type OrderAnswer, type Placed } from './messages.ts'
import { charge } from './provider.ts'

/** `npx ackbox key secret orders` prints SIGNING_SECRET. */
const { DATABASE_URL = '', PORT = '', ACKBOX_URL = '', STOCK_URL = '', SIGNING_SECRET = '' } = process.env

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 10 })
pool.on('error', err => console.error(err.message))
/** The provider is a separate service, so it has its own pool: else waiting payments would hold all connections. */
const provider = new pg.Pool({ connectionString: DATABASE_URL, max: 4 })
provider.on('error', err => console.error(err.message))
const db = fromPg(pool)
// No handler here needs a receipt. With `needCallback`, `void tasks.run()` would send the receipts that follow a 202.
const tasks = receiver({ secrets: [SIGNING_SECRET], db, consumer: 'orders', url: ACKBOX_URL })

/** Sends a request to the stock. False: it refuses (409). Throws without an answer. */
async function stockSaysYes(path: string, body: object): Promise<boolean> {
  const { status } = await fetch(`${STOCK_URL}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
    signal: AbortSignal.timeout(5_000)
  })
  if (status !== 200 && status !== 409) throw new Error(`the stock answered ${status}`)
  return status === 200
}

/**
 * Freezes the stock, then stores the order. A crash between the two leaves a freeze without an order: its time limit releases it. The
 * release may even come before the order is stored: then the order exists already, CLOSED.
 */
async function place(order: Placed): Promise<OrderAnswer> {
  const { orderId, sku, quantity, cents } = order
  const isFrozen = await stockSaysYes('/freezes', order)
  await pool.query(
    `insert into customer_order (order_id, sku, quantity, cents, state, reason) values ($1, $2, $3, $4, $5, $6)
     on conflict do nothing`,
    [orderId, sku, quantity, cents, ...(isFrozen ? ['UNPAID', null] : ['CLOSED', 'OUT_OF_STOCK'])]
  )
  return await stateOf(orderId)
}

/** Starts the payment: its task ends it, even if a process dies. */
const startPayment = (orderId: string, card: string): Promise<OrderAnswer> =>
  db.begin(async tx => {
    const { rowCount } = await tx.query(
      "update customer_order set state = 'PAYING', card = $2 where order_id = $1 and state = 'UNPAID'",
      [orderId, card]
    )
    if (rowCount === 1) await outbox(fromPg(tx), { messageCode: 'payment.started', messageBody: { orderId } })
    return await stateOf(orderId, tx)
  })

/** Checks the freeze, charges the customer, and stores the result. It is retried until done: both requests can be repeated for an order. */
async function pay(tx: pg.ClientBase, { body }: ReceivedTask): Promise<OrderAnswer> {
  const { orderId } = body as { orderId: string }
  const { rows } = await tx.query<{ cents: number; card: string }>(
    'select cents, card from customer_order where order_id = $1',
    [orderId]
  )
  const [order] = rows
  if (order === undefined) throw new Error(`no order ${orderId}`)
  const isHeld = await stockSaysYes(`/freezes/${orderId}/hold`, {}).catch(err => {
    throw new Retry(500, { cause: err })
  })
  // Released: the customer is not charged, so there is nothing to refund.
  if (!isHeld) return await end(tx, orderId, { state: 'CLOSED', reason: 'FREEZE_RELEASED' })
  const isPaid = await charge(provider, { key: orderId, ...order })
  await outbox(fromPg(tx), { messageCode: 'payment.ended', messageBody: { orderId, isPaid } })
  return await end(tx, orderId, isPaid ? { state: 'PAID' } : { state: 'CLOSED', reason: 'PAYMENT_FAILED' })
}

async function end(tx: pg.ClientBase, orderId: string, how: OrderAnswer): Promise<OrderAnswer> {
  await tx.query(
    "update customer_order set state = $2, reason = $3 where order_id = $1 and state = 'PAYING'",
    [orderId, how.state, how.reason ?? null]
  )
  return how
}

/** The stock is released. A payment in progress finds that out by its own check. */
async function close(tx: pg.ClientBase, { body }: ReceivedTask): Promise<void> {
  const { orderId, sku, quantity, cents } = body as Placed
  await tx.query(
    `insert into customer_order (order_id, sku, quantity, cents, state, reason) values ($1, $2, $3, $4, 'CLOSED', 'FREEZE_RELEASED')
     on conflict (order_id) do update set state = excluded.state, reason = excluded.reason where customer_order.state = 'UNPAID'`,
    [orderId, sku, quantity, cents]
  )
}

async function stateOf(orderId: string, at: Pick<pg.ClientBase, 'query'> = pool): Promise<OrderAnswer> {
  const { rows } = await at.query<OrderAnswer>(
    'select state, reason from customer_order where order_id = $1',
    [orderId]
  )
  if (rows[0] === undefined) throw Object.assign(new Error(`no order ${orderId}`), { statusCode: 404 })
  return rows[0]
}

const app = Fastify()
app.post('/orders', async (request, reply) => {
  const order = placed.safeParse(request.body)
  return order.success ? await place(order.data) : await reply.code(422).send()
})
app.post<{ Params: { orderId: string }; Body: { card: string } }>('/orders/:orderId/pay', async request =>
  startPayment(request.params.orderId, request.body.card)
)
app.get<{ Params: { orderId: string } }>('/orders/:orderId', async request => stateOf(request.params.orderId))
app.post('/ackbox/payment-started', tasks.fastify(pay))
app.post('/ackbox/freeze-released', tasks.fastify(close))

await app.listen({ port: Number(PORT), host: '127.0.0.1' })
console.log(`orders are ready on ${PORT}`)
