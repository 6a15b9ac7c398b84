// The HTTP adapters with the real frameworks: the answer in each case.
import { once } from 'node:events'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import express from 'express'
import fastify from 'fastify'
import t, { type Test } from 'tap'
import {
  fromPg,
  receiver,
  Refuse,
  Retry,
  type Receiver,
  type ReceiverOptions,
  type Work
} from '../../src/consumer/consumer.ts'
import { only } from '../support/only.ts'
import { until } from '../support/until.ts'
import {
  door,
  grant,
  mariadbBank,
  newId,
  postgresBank,
  secret,
  signed,
  type Bank,
  type Signed
} from './databases.ts'

t.setTimeout(600_000)

interface Answered {
  status: number
  headers: Headers
  text: string
}
type Ask = (request: Signed) => Promise<Answered>
type Door = (t: Test, points: Receiver<unknown>, work: Work<unknown>) => Promise<Ask>

const read = async (answer: Response): Promise<Answered> => ({
  status: answer.status,
  headers: answer.headers,
  text: await answer.text()
})
const asking =
  (url: string): Ask =>
  async ({ headers, body }) =>
    read(await fetch(url, { method: 'POST', headers, body }))

async function listen(t: Test, listener: RequestListener): Promise<string> {
  const server = createServer(listener)
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.close()
    server.closeAllConnections()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const doors: Record<string, Door> = {
  node: async (t, points, work) => asking(await listen(t, points.node(work))),
  express: async (t, points, work) => {
    const app = express()
    app.post('/paid', points.express(work))
    return asking(`${await listen(t, app)}/paid`)
  },
  'express that keeps the bytes when it parses': async (t, points, work) => {
    const app = express()
    app.use(express.json({ verify: (request, _, bytes) => void Object.assign(request, { rawBody: bytes }) }))
    app.post('/paid', points.express(work))
    return asking(`${await listen(t, app)}/paid`)
  },
  fastify: async (t, points, work) => {
    const app = fastify()
    app.post('/paid', points.fastify(work))
    t.teardown(() => app.close())
    return asking(`${await app.listen({ host: '127.0.0.1', port: 0 })}/paid`)
  },
  fetch: async (_, points, work) => {
    const handle = points.fetch(work)
    return async ({ headers, body }) =>
      read(await handle(new Request('http://shop.test/paid', { method: 'POST', headers, body })))
  }
}

t.test('PostgreSQL', async t => {
  const bank = await postgresBank(t)
  await byEveryDoor(t, bank)
  await answeredBySomethingElse(t, bank)
  await stories(t, bank)
})

t.test('MariaDB', async t => {
  const bank = await mariadbBank(t)
  if (bank) await stories(t, bank)
})

async function byEveryDoor(t: Test, bank: Bank): Promise<void> {
  for (const [name, open] of Object.entries(doors))
    await t.test(name, async t => {
      const points = receiver({
        secrets: [secret],
        db: bank.db,
        consumer: 'points',
        maxBytes: 1_000,
        onError: () => {}
      })
      const ask = await open(t, points, async (tx, task) => {
        await bank.run(tx, grant)
        return { granted: (task.body as { points: number }).points, taskNo: task.taskNo }
      })
      const before = await bank.granted()
      const request = signed('fixed')
      request.headers = signed(newId()).headers
      const good = signed(newId(), {}, '{ "points" :7.0}')
      const first = await ask(good)
      t.equal(first.status, 200)
      t.equal(first.headers.get('ackbox-result'), 'HANDLED')
      t.same(JSON.parse(first.text), { granted: 7, taskNo: good.headers['ackbox-task-no'] })
      const second = await ask(good)
      t.same([second.status, second.text], [200, first.text], 'a repeat has the same answer')
      t.equal((await bank.granted()) - before, 7)

      const wrong = { ...good, body: Buffer.from('{ "points" :9.0}') }
      t.equal((await ask(wrong)).status, 401)
      t.equal(
        (await ask({ headers: { 'content-type': 'application/json' }, body: Buffer.from('{}') })).status,
        401
      )
      const broken = signed(newId(), {}, 'no JSON')
      if (!name.includes('parses')) {
        t.equal((await ask(broken)).status, 500, 'work that reads a body which is no JSON fails')
        t.equal((await ask({ ...broken, body: Buffer.alloc(2_000, 'x') })).status, 413)
      }
      t.equal((await bank.granted()) - before, 7)
    })
  await t.test('express that has parsed the body and kept no bytes', async t => {
    const told: unknown[] = []
    const points = receiver({
      secrets: [secret],
      db: bank.db,
      consumer: 'points',
      onError: err => void told.push(err)
    })
    const app = express()
    app.use(express.json())
    app.post(
      '/paid',
      points.express(async () => {})
    )
    const ask = asking(`${await listen(t, app)}/paid`)
    t.equal((await ask(signed(newId()))).status, 500)
    t.match(told, only({ message: /before express\.json/ }))
  })
}

/** The answer of something else than the receiver while its work runs, as of a timeout: all of it, or only its beginning. */
const foreign: Record<
  string,
  { begin(response: ServerResponse): void; end(response: ServerResponse): void }
> = {
  whole: { begin: response => void response.writeHead(503).end(), end: () => {} },
  begun: {
    begin: response => response.writeHead(503).flushHeaders(),
    end: response => void response.end()
  }
}

async function answeredBySomethingElse(t: Test, bank: Bank): Promise<void> {
  for (const [name, open] of Object.entries(doors).filter(([name]) => name !== 'fetch'))
    for (const [part, { begin, end }] of Object.entries(foreign))
      await t.test(`${name}: something else answers during the work (${part})`, async t => {
        const told: unknown[] = []
        const [begun, gate] = [door(), door()]
        const points = receiver({
          secrets: [secret],
          db: bank.db,
          consumer: 'points',
          onError: err => void told.push(err)
        })
        const answered: ServerResponse[] = []
        const hear = (message: unknown) =>
          void answered.push((message as { response: ServerResponse }).response)
        subscribe('http.server.request.start', hear)
        t.teardown(() => unsubscribe('http.server.request.start', hear))
        const ask = await open(t, points, async tx => {
          begun.open()
          await gate.opened
          await bank.run(tx, grant)
        })
        const before = await bank.granted()
        const asked = ask(signed(newId()))
        await begun.opened
        const [response] = answered
        if (!response) throw new Error('no request was seen')
        begin(response)
        gate.open()
        await until('it is reported', () => told.length > 0)
        end(response)
        t.equal((await asked).status, 503)
        t.match(told, only({ name: 'AdapterError', message: /Something else has answered/ }))
        t.equal((await bank.granted()) - before, 7)
      })
}

async function stories(t: Test, bank: Bank): Promise<void> {
  const about = { secrets: [secret], db: bank.db, consumer: 'points' }
  const token = { 'ackbox-callback-token': 'token-1', 'ackbox-callback-url': 'http://127.0.0.1:1/callback' }
  const ask = async (
    request: Signed,
    work: Work<unknown>,
    more: Partial<ReceiverOptions<Bank['db']>> = {}
  ): Promise<Answered> => {
    const points = receiver({ ...about, ...more })
    return read(
      await points.fetch(work)(
        new Request('http://shop.test/', { method: 'POST', headers: request.headers, body: request.body })
      )
    )
  }
  const pay: Work<unknown> = async tx => {
    await bank.run(tx, grant)
  }
  const receipts = async () =>
    (await bank.select("select receipt from ackbox_receipt_outbox where consumer = 'points'")).map(row =>
      JSON.parse(String(row['receipt']))
    ) as unknown[]

  await t.test('what a handler throws is the answer, and nothing else of it', async t => {
    const told: unknown[] = []
    const onError = (err: unknown) => void told.push(err)
    const before = await bank.granted()
    const throwing = async (err: unknown, request = signed(newId())) =>
      ask(
        request,
        async tx => {
          await bank.run(tx, grant)
          throw err
        },
        { onError }
      )
    const later = await throwing(new Retry(2_500))
    t.same([later.status, later.headers.get('retry-after'), later.text], [503, '3', ''])
    const never = await throwing(new Refuse('no such account'))
    t.same([never.status, never.text], [410, '{"reason":"no such account"}'])
    const deadlock = await throwing(Object.assign(new Error('deadlock'), { code: '40P01' }))
    t.same([deadlock.status, deadlock.headers.get('retry-after')], [503, '1'])
    t.same(told, [])
    const other = await throwing(new Error('password=hunter2'))
    t.same([other.status, other.text, [...other.headers.keys()]], [500, '', []])
    t.match(told, only({ message: 'password=hunter2' }))
    t.equal((await bank.granted()) - before, 0, 'all of it was rolled back')
  })

  await t.test('a signature that is too old is refused', async t => {
    const answer = await ask(signed(newId()), pay, { toleranceMs: -1 })
    t.equal(answer.status, 401)
  })

  await t.test('work past the deadline, without a token: 503, and the repeat has the result', async t => {
    const request = signed(newId())
    const before = await bank.granted()
    const gate = door()
    const slow: Work<unknown> = async tx => {
      await gate.opened
      await bank.run(tx, grant)
      return 'slow'
    }
    const first = await ask(request, slow, { deadlineMs: 20 })
    t.same([first.status, first.headers.get('retry-after')], [503, '1'])
    gate.open()
    const second = await ask(request, slow)
    t.same([second.status, second.text], [200, '"slow"'])
    t.equal((await bank.granted()) - before, 7)
    t.same(await receipts(), [])
  })

  await t.test(
    'work past the deadline, with a token: 202, and the receipt commits with the work',
    async t => {
      const request = signed(newId(), token)
      const before = await bank.granted()
      const gate = door()
      const first = await ask(request, async tx => (await gate.opened, await bank.run(tx, grant), 'late'), {
        deadlineMs: 20
      })
      t.same([first.status, first.headers.get('ackbox-result')], [202, null], 'a 202 says no HANDLED')
      t.same(await receipts(), [])
      gate.open()
      await until('the receipt is written', async () => (await receipts()).length === 1)
      t.equal((await bank.granted()) - before, 7)
      t.same(await receipts(), [
        { taskNo: request.headers['ackbox-task-no'], messageCode: 'order.paid', result: 'HANDLED' }
      ])
      await bank.select('delete from ackbox_receipt_outbox')
    }
  )

  await t.test('after a 202 a failure is told by a receipt of its own', async t => {
    const failing = async (err: unknown) => {
      const gate = door()
      const answer = await ask(
        signed(newId(), token),
        async tx => {
          await gate.opened
          await bank.run(tx, grant)
          throw err
        },
        { deadlineMs: 20, onError: () => {} }
      )
      t.equal(answer.status, 202)
      gate.open()
      await until('the receipt is written', async () => (await receipts()).length === 1)
      const [receipt] = await receipts()
      await bank.select('delete from ackbox_receipt_outbox')
      return receipt
    }
    const before = await bank.granted()
    t.match(await failing(new Refuse('closed')), { result: 'FAILED', reason: 'closed' })
    const most = 'x'.repeat(999)
    t.match(
      await failing(new Refuse(`${most}💸`)),
      { result: 'FAILED', reason: `${most}\ufffd` },
      'no half of a character'
    )
    t.match(await failing(new Refuse('bad byte \0, cut \ud83d')), { reason: 'bad byte \ufffd, cut \ufffd' })
    const { reason, result } = (await failing(new Error('hunter2'))) as { reason?: string; result: string }
    t.same([result, reason], ['RETRY', undefined])
    t.equal((await bank.granted()) - before, 0)
  })

  await t.test('receipts are sent until Ackbox has them', async t => {
    const seen: { token: unknown; body: unknown }[] = []
    const script: [status: number, text: string][] = [
      [503, '{}'],
      [429, '{}'],
      [200, '<h1>We will be back soon</h1>'],
      [200, '{"taskNo":"order-1","status":"HANDLED","applied":true}'],
      [404, '<h1>Not found</h1>'],
      [401, '{"code":"UNAUTHORIZED"}'],
      [401, '{"code":"BAD_TOKEN"}']
    ]
    const url = await listen(t, (request, response) => {
      let text = ''
      request.on('data', chunk => (text += String(chunk)))
      request.on('end', () => {
        seen.push({ token: request.headers['ackbox-callback-token'], body: JSON.parse(text) })
        const [status, answer] = script[seen.length - 1] ?? [500, '']
        response.writeHead(status, { 'retry-after': '0' }).end(answer)
      })
    })
    const told: unknown[] = []
    const points = receiver({ ...about, url, onError: err => void told.push(err) })
    const stop = new AbortController()
    const running = points.run({ signal: stop.signal, pollMs: 20 })
    const handle = async (request: Signed) =>
      bank.db.begin(native =>
        points.once(bank.db.within(native), request, async () => void (await bank.run(native, grant)))
      )
    await handle(signed(newId(), token))
    await until('it was sent four times', () => seen.length === 4)
    await until('it is gone', async () => (await receipts()).length === 0)
    t.same(new Set(seen.map(one => JSON.stringify(one))).size, 1, 'the same each time')
    t.match(seen[0], { token: 'token-1', body: { messageCode: 'order.paid', result: 'HANDLED' } })
    t.same(told, [])
    // An answer of a proxy or a wrong address loses no receipt. A refusal by /callback ends the receipt and is reported.
    await handle(signed(newId(), token))
    await until('the last one is gone', async () => seen.length === 7 && (await receipts()).length === 0)
    t.match(told, [{ name: 'ReceiptRefused', message: /401: .*BAD_TOKEN/ }])
    t.equal(told.length, 1)
    t.equal(dependants(stop.signal), 0, 'no receipt is left in a signal that lives long')
    stop.abort()
    await running
  })

  await t.test('a probe hears whether the delivery is handled, and runs no work', async t => {
    const id = newId()
    const probe = () => signed(`probe_${id}_2`, { 'ackbox-probe': '1', 'ackbox-attempt': '2' }, '')
    const before = await bank.granted()
    const asked = async () => {
      const { status, headers, text } = await ask(probe(), pay)
      return [status, headers.get('ackbox-result'), text]
    }
    const unhandled = [404, null, '{"handled":false}']
    t.same(await asked(), unhandled)
    const [begun, gate] = [door(), door()]
    const working = ask(signed(id), async tx => {
      begun.open()
      await gate.opened
      await pay(tx, {} as never)
    })
    await begun.opened
    t.same(await asked(), unhandled, 'what is not committed does not count')
    gate.open()
    t.equal((await working).status, 200)
    t.same(await asked(), [200, null, '{"handled":true}'])
    t.equal((await bank.granted()) - before, 7)
    const bare = signed(`probe_${id}_2`, {}, '')
    t.equal((await ask(bare, pay)).text, '{"handled":true}', 'its id tells it, too')
    const other = receiver({ ...about, consumer: 'stock' })
    await t.rejects(
      bank.db.begin(native => other.once(bank.db.within(native), probe(), async () => t.fail('it ran'))),
      { name: 'AdapterError', message: /probe/ }
    )
  })

  await t.test('missing tables are told while receipts are sent, and end nothing', async t => {
    await bank.select('alter table ackbox_receipt_outbox rename to ackbox_receipt_outbox_later')
    const told: unknown[] = []
    const points = receiver({ ...about, onError: err => void told.push(err) })
    const stop = new AbortController()
    let isRunning = true
    const running = points.run({ signal: stop.signal, pollMs: 20 }).finally(() => {
      isRunning = false
    })
    await until('it is told', () => told.length > 0 || !isRunning)
    await bank.select('alter table ackbox_receipt_outbox_later rename to ackbox_receipt_outbox')
    t.ok(isRunning)
    t.match(told[0], { name: 'AdapterError', message: /print-ddl/ })
    stop.abort()
    await running
  })

  await t.test(
    'a repeat that wants a receipt gets one of its own, and one by hand may do without',
    async t => {
      const points = receiver(about)
      const id = newId()
      const handle = (attempt: string, receipt?: boolean) =>
        bank.db.begin(native =>
          points.once(
            bank.db.within(native),
            signed(id, { ...token, 'ackbox-attempt': attempt }),
            async () => {},
            {
              receipt
            }
          )
        )
      await handle('1')
      await handle('2')
      t.equal((await receipts()).length, 2)
      await handle('3', false)
      t.equal((await receipts()).length, 2)
      await bank.select('delete from ackbox_receipt_outbox')
    }
  )
}

t.test('the types: a handler gets the transaction of its own library', async t => {
  const pg = await import('pg')
  const pool = new pg.default.Pool({ connectionString: 'postgres://127.0.0.1:1/none' })
  const points = receiver({ secrets: [secret], db: fromPg(pool), consumer: 'points' })
  fastify().post(
    '/paid',
    points.fastify(async tx => (await tx.query<{ id: string }>('select id')).rows[0]?.id)
  )
  await pool.end()
  t.type(points.fetch, 'function')
})

/** How many signals of AbortSignal.any Node keeps in this one. */
function dependants(signal: AbortSignal): number {
  const name = Object.getOwnPropertySymbols(signal).find(one => one.description === 'kDependantSignals')
  const kept = name && (Reflect.get(signal, name) as Set<unknown> | undefined)
  return kept?.size ?? 0
}
