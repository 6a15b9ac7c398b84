// Half messages of a producer with a barrier, against a real service that sends checks.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import path from 'node:path'
import t from 'tap'
import { signingSecret } from '../../src/domain/tokens.ts'
import { answerCheck, client, halfMessage, verifier, type CheckRequest } from '../../src/producer/producer.ts'
import { secret, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { pay, postgresShop } from './databases.ts'

t.setTimeout(600_000)

t.test('a half message ends as its transaction did, whatever was lost on the way', async t => {
  const at = await stage(t)
  if (!at) return
  const shop = await postgresShop(t)
  const isSigned = verifier([signingSecret(secret, 'check:order.paid')])
  const server = createServer((request, response) => {
    void text(request).then(async body => {
      if (!isSigned({ headers: request.headers, body })) return response.writeHead(401).end()
      return response.end(JSON.stringify(await answerCheck(shop.db, JSON.parse(body) as CheckRequest)))
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  const { url } = await start(t, {
    ...at.env,
    HANDLERS_DIR: path.resolve(import.meta.dirname, 'handlers'),
    TEST_SHOP: `http://${host}`,
    EGRESS_ALLOW: `${at.env['EGRESS_ALLOW']},${host}`
  })
  const ackbox = client({ url })
  const task = (taskNo: string) => ({ taskNo, messageCode: 'order.paid', messageBody: { total: 7 } })
  const buy = (taskNo: string, more = async () => {}, db = shop.db) =>
    halfMessage(
      ackbox,
      db,
      task(taskNo),
      async native => {
        await shop.run(native, pay)
        await more()
      },
      { checkAfter: '1s' }
    )

  await t.test('committed', async t => {
    t.match(await buy('good'), { task: { taskNo: 'good' } })
    t.match(await ackbox.waitFor('good'), { status: 'HANDLED' })
  })
  await t.test('thrown', async t => {
    await t.rejects(
      buy('thrown', () => Promise.reject(new Error('no'))),
      { message: 'no' }
    )
    t.match(await ackbox.read('thrown'), { status: 'CANCELLED' })
  })
  await t.test('the answer of the commit is lost', async t => {
    const lost = {
      ...shop.db,
      begin: async <R>(work: (native: unknown) => Promise<R>): Promise<R> => {
        await shop.db.begin(work)
        throw new Error('lost')
      }
    }
    t.match(await buy('lost', undefined, lost), { task: { taskNo: 'lost' } })
    t.match(await ackbox.waitFor('lost'), { status: 'HANDLED' })
  })
  await t.test('the producer died before its work, and after it: Ackbox asks by itself', async t => {
    await ackbox.prepare(task('died-before'), { checkAfter: '1s' })
    t.match(await ackbox.waitFor('died-before'), { status: 'CANCELLED' })
    const dead = { ...ackbox, commit: () => Promise.reject(new Error('dead')) }
    t.match(
      await halfMessage(dead, shop.db, task('died-after'), native => shop.run(native, pay), {
        checkAfter: '1s'
      }),
      {
        task: undefined
      }
    )
    t.match(await ackbox.waitFor('died-after'), { status: 'HANDLED' })
  })
  await t.test('asked while it is at work: UNKNOWN, and asked again', async t => {
    let states: unknown
    await buy('slow', () =>
      until('it was asked', async () => {
        states = (await ackbox.read('slow'))['prepared']
        return JSON.stringify(states).includes('UNKNOWN')
      })
    )
    t.match(await ackbox.waitFor('slow'), { status: 'HANDLED' })
  })
  t.equal(await shop.balance(), 500 - 7 * 4)
})
