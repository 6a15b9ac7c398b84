// A bank: it sends money by a half message and receives it by consumeOnce, each in one transaction of its own database.
import Fastify, { type FastifyRequest } from 'fastify'
import pg from 'pg'
import { Webhook } from 'standardwebhooks'
import { fromPg, receiver } from 'ackbox/consumer'
import {
  AlreadyDecided,
  answerCheck,
  client,
  halfMessage,
  UnclearCommit,
  type CheckRequest
} from 'ackbox/producer'
import { unclaimed } from './tables.ts'
import { transferSchema, type Answer, type Transfer } from './transfer.ts'

const { BANK = '', DATABASE_URL = '', PORT = '', ACKBOX_URL = '' } = process.env
/** For bank a, `npx ackbox key secret bank-a` and `npx ackbox key secret check:transfer.sent` print them. */
const { SIGNING_SECRET = '', CHECK_SECRET = '' } = process.env
/** Larger transfers are refused, by a rule that is checked after the debit: the transaction is rolled back. */
const mostCents = 50_000

class Refused extends Error {}

const pool = new pg.Pool({ connectionString: DATABASE_URL, max: 10 })
pool.on('error', err => console.error(err.message))
const db = fromPg(pool)
const ackbox = client({ url: ACKBOX_URL })
// No handler here needs a receipt. With `needCallback`, `void incoming.run()` would send the receipts that follow a 202.
const incoming = receiver({ secrets: [SIGNING_SECRET], db, consumer: `bank-${BANK}`, url: ACKBOX_URL })

/** Debit and half message: Ackbox delivers the transfer if and only if this transaction commits. */
async function debit(tx: pg.ClientBase, { transferId, from, cents }: Transfer): Promise<void> {
  const { rowCount } = await tx.query(
    'update account set cents = cents - $2 where id = $1 and cents >= $2 and id <> $3',
    [from, cents, unclaimed]
  )
  if (rowCount === 0) throw new Refused('there is no such account, or not enough money in it')
  await tx.query("insert into ledger (transfer_id, direction, account, cents) values ($1, 'OUT', $2, $3)", [
    transferId,
    from,
    cents
  ])
  if (cents > mostCents) throw new Refused(`more than ${mostCents} cents need a person`)
}

/** Runs once per transfer, even if it is delivered several times. */
async function credit(tx: pg.ClientBase, { transferId, to, cents }: Transfer): Promise<void> {
  const { rows } = await tx.query<{ id: string }>(
    'update account set cents = cents + $2 where id = coalesce((select id from account where id = $1), $3) returning id',
    [to, cents, unclaimed]
  )
  await tx.query("insert into ledger (transfer_id, direction, account, cents) values ($1, 'IN', $2, $3)", [
    transferId,
    rows[0]?.id,
    cents
  ])
}

async function send(transfer: Transfer): Promise<Answer> {
  const { transferId } = transfer
  const message = { taskNo: transferId, messageCode: 'transfer.sent', sceneType: BANK, messageBody: transfer }
  try {
    await halfMessage(ackbox, db, message, tx => debit(tx, transfer), { checkAfter: '2s' })
    return { state: 'SENT' }
  } catch (err) {
    if (err instanceof Refused) return { state: 'REFUSED', reason: err.message }
    // The transfer was ordered before and the answer was lost: the ledger has the result.
    if (err instanceof AlreadyDecided) return await decided(transferId)
    throw err
  }
}

async function decided(transferId: string): Promise<Answer> {
  const { rowCount } = await pool.query(
    "select from ledger where transfer_id = $1 and direction = 'OUT' limit 1",
    [transferId]
  )
  return rowCount ? { state: 'SENT' } : { state: 'REFUSED', reason: 'it was rolled back: take a new id' }
}

const app = Fastify()
// Signatures cover the text as received.
app.addContentTypeParser('application/json', { parseAs: 'string' }, (_request, text, done) =>
  done(null, text)
)
const textOf = (request: FastifyRequest): string => String(request.body)

const jsonOf = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

app.post('/transfers', async (request, reply) => {
  const transfer = transferSchema.safeParse(jsonOf(textOf(request)))
  if (!transfer.success || transfer.data.fromBank !== BANK) return await reply.code(422).send()
  return await send(transfer.data)
})

app.post('/ackbox/check', async (request, reply) => {
  const text = textOf(request)
  try {
    new Webhook(CHECK_SECRET).verify(text, request.headers as Record<string, string>)
  } catch {
    return await reply.code(401).send()
  }
  return await answerCheck(db, JSON.parse(text) as CheckRequest)
})

app.post(
  '/ackbox/transfers',
  incoming.fastify((tx, task) => credit(tx, task.body as Transfer))
)

// It is not known here whether it was committed: the customer repeats the request.
app.setErrorHandler((err, _request, reply) => {
  if (!(err instanceof UnclearCommit)) console.error(err)
  void reply.code(503).send()
})

await app.listen({ port: Number(PORT), host: '127.0.0.1' })
console.log(`bank ${BANK} is ready on ${PORT}`)
