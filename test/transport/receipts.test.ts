// A receipt from a queue that was not taken leaves the queue or stays, depending on whose fault it was.
import t from 'tap'
import { faultOf, takeReceipt } from '../../src/api/receipt.ts'
import { Unavailable } from '../../src/runtime/errors.ts'
import type { ReceiveResult } from '../../src/delivery/receive.ts'
import { takerFor } from '../../src/transport/receipt-readers.ts'
import type { ReceiptMessage } from '../../src/transport/receipts.ts'

const receipt = JSON.stringify({ taskNo: 'a', messageCode: 'order.paid' })

/** The verdict on a receipt with this text, and the logged events, if the service receives by `receive`. */
async function verdictOn(
  receive: () => Promise<ReceiveResult>,
  text = receipt,
  body: Uint8Array = Buffer.from(text)
) {
  const said: string[] = []
  const log = { info() {}, debug() {}, warn: (_: object, message: string) => said.push(message) }
  const take = (message: { body: Uint8Array }, from: string) =>
    takeReceipt({ receive }, message.body, undefined, from)
  const takeQueued = takerFor({ take, faultOf, log }, { scheme: 'amqp', name: 'stock' })
  return { verdict: await takeQueued({ body, headers: {} }), said }
}

const taken = async (): Promise<ReceiveResult> => ({
  kind: 'ok',
  taskNo: 'a',
  status: 'HANDLED',
  applied: true
})
const postgres = (code: string): Error => Object.assign(new Error('of PostgreSQL'), { code })

t.test('a receipt that is taken, or that its sender must mend, leaves the queue', async t => {
  t.same(await verdictOn(taken), { verdict: 'done', said: [] })
  const refused = { verdict: 'done', said: ['receipt.refused'] }
  t.same(await verdictOn(async () => 'unauthorized'), refused)
  t.same(await verdictOn(async () => 'gone'), refused)
  for (const text of ['', 'no JSON', '{"taskNo":"a","taskNo":"b"}', '{"taskNo":"a"}', '[]', '\u00ff'])
    t.same(await verdictOn(taken, text), refused, text)
})

t.test('a receipt that came in two packets is taken as one that came in one', async t => {
  // The client of NATS passes a Buffer for one packet and a plain Uint8Array for two.
  const joined = new TextEncoder().encode(receipt)
  t.notOk(Buffer.isBuffer(joined))
  t.same(await verdictOn(taken, receipt, joined), { verdict: 'done', said: [] })
})

t.test('a receipt that nobody can write now stays in the queue', async t => {
  const rejects = (err: Error) => verdictOn(() => Promise.reject(err))
  t.same(await rejects(new Unavailable()), { verdict: 'later', said: [] }, 'nor is each said in an outage')
})

t.test('a bug of ours, or a PostgreSQL that lacks a right or a table, loses no receipt', async t => {
  const rejects = (err: Error) => verdictOn(() => Promise.reject(err))
  for (const err of [new TypeError('a bug'), postgres('XX000'), postgres('42501'), postgres('42P01')])
    t.same(await rejects(err), { verdict: 'later', said: ['receipt.failed'] }, String(err))
})

t.test('a receipt that never succeeds is said at its 1st, 10th and 100th try', async t => {
  const said: unknown[][] = []
  const say =
    (level: string) =>
    ({ tries }: { tries?: number }, event: string): void =>
      void said.push([level, event, tries])
  const log = { info: say('info'), warn: say('warn'), debug: say('debug') }
  const take = () => Promise.reject(new TypeError('a bug'))
  const takeQueued = takerFor({ take, faultOf, log }, { scheme: 'amqp', name: 'stock' })
  const tryAgain = async (message: ReceiptMessage, tries: number): Promise<void> => {
    for (let nth = 0; nth < tries; nth++) t.equal(await takeQueued(message), 'later')
  }
  await tryAgain({ body: Buffer.from(receipt), headers: {} }, 150)
  await tryAgain({ body: Buffer.from(receipt), headers: {} }, 1)
  const loud = said.filter(([level]) => level === 'warn')
  t.same(
    loud,
    [1, 10, 100, 1].map(tries => ['warn', 'receipt.failed', tries]),
    'and that of another receipt'
  )
  t.equal(said.length, 151, 'the others are there at debug')
})
