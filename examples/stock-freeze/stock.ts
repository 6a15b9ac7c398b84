// The stock: it freezes articles for orders, and ends each freeze once, as sold or as unsold.
import Fastify from 'fastify'
import pg from 'pg'
import { fromPg, receiver, Refuse, type ReceivedTask } from 'ackbox/consumer'
import { outbox } from 'ackbox/producer'
import { placed, type Placed } from './messages.ts'

/** `npx ackbox key secret stock` prints SIGNING_SECRET. */
const { DATABASE_URL = '', PORT = '', ACKBOX_URL = '', SIGNING_SECRET = '' } = process.env

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 10 })
pool.on('error', err => console.error(err.message))
const db = fromPg(pool)
// No handler here needs a receipt. With `needCallback`, `void tasks.run()` would send the receipts that follow a 202.
const tasks = receiver({ secrets: [SIGNING_SECRET], db, consumer: 'stock', url: ACKBOX_URL })

/** Freezes, and in the same transaction writes the task that releases the freeze if it is not paid in time. False: out of stock. */
const freeze = (order: Placed): Promise<boolean> =>
  db.begin(async tx => {
    const { orderId, sku, quantity, limitMs } = order
    // This insert is first: of two requests for one order the second waits here, and then finds the row.
    const inserted = await tx.query(
      'insert into stock_freeze (order_id, sku, quantity, placed) select $1::text, sku, $3::int, $4::jsonb from stock where sku = $2 on conflict do nothing',
      [orderId, sku, quantity, order]
    )
    if (inserted.rowCount === 0) {
      const known = await tx.query('select from stock_freeze where order_id = $1', [orderId])
      return known.rowCount === 1
    }
    const taken = await tx.query(
      'update stock set available = available - $2, frozen = frozen + $2 where sku = $1 and available >= $2',
      [sku, quantity]
    )
    if (taken.rowCount === 0) {
      await tx.query('delete from stock_freeze where order_id = $1', [orderId])
      return false
    }
    await outbox(fromPg(tx), { messageCode: 'freeze.due', messageBody: { orderId }, delay: limitMs })
    return true
  })

/**
 * The check before a payment. True: the freeze exists, and its time limit does not release it any more. False: it is released. It is one
 * statement, so it runs either before the release or after it.
 */
async function hold(orderId: string): Promise<boolean> {
  const { rowCount } = await pool.query(
    "update stock_freeze set is_held = true where order_id = $1 and state = 'FROZEN'",
    [orderId]
  )
  return rowCount === 1
}

/** Ends a FROZEN freeze. Undefined: it had ended before, or its `is_held` is not the expected one. */
async function release(
  tx: pg.ClientBase,
  orderId: string,
  { isSold, isHeld }: { isSold: boolean; isHeld: boolean }
): Promise<Placed | undefined> {
  const { rows } = await tx.query<{ placed: Placed }>(
    "update stock_freeze set state = $2 where order_id = $1 and state = 'FROZEN' and is_held = $3 returning placed",
    [orderId, isSold ? 'RELEASED_SOLD' : 'RELEASED_UNSOLD', isHeld]
  )
  const [row] = rows
  if (row === undefined) return undefined
  await tx.query(
    `update stock set frozen = frozen - $2, sold = sold + $3, available = available + $2 - $3 where sku = $1`,
    [row.placed.sku, row.placed.quantity, isSold ? row.placed.quantity : 0]
  )
  return row.placed
}

/** The time limit is over. A held freeze is left to its payment, which always ends. */
async function releaseUnpaid(tx: pg.ClientBase, { body }: ReceivedTask): Promise<void> {
  const { orderId } = body as { orderId: string }
  const order = await release(tx, orderId, { isSold: false, isHeld: false })
  if (order) await outbox(fromPg(tx), { messageCode: 'freeze.released', messageBody: order })
}

/** The payment has ended: the stock is sold, or available again. */
async function settle(tx: pg.ClientBase, { body }: ReceivedTask): Promise<void> {
  const { orderId, isPaid } = body as { orderId: string; isPaid: boolean }
  if (await release(tx, orderId, { isSold: isPaid, isHeld: true })) return
  // Impossible: a payment begins with a hold, and only its end releases a held freeze. FAILED with an alarm, for an operator.
  throw new Refuse(`the freeze of ${orderId} is not held`)
}

const app = Fastify()
app.post('/freezes', async (request, reply) => {
  const order = placed.safeParse(request.body)
  if (!order.success) return await reply.code(422).send()
  return await reply.code((await freeze(order.data)) ? 200 : 409).send({})
})
app.post<{ Params: { orderId: string } }>('/freezes/:orderId/hold', async (request, reply) =>
  reply.code((await hold(request.params.orderId)) ? 200 : 409).send({})
)
app.post('/ackbox/freeze-due', tasks.fastify(releaseUnpaid))
app.post('/ackbox/payment-ended', tasks.fastify(settle))

await app.listen({ port: Number(PORT), host: '127.0.0.1' })
console.log(`the stock is ready on ${PORT}`)
