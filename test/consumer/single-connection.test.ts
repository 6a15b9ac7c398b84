// A receiver whose database is one connection and no pool: its transactions come one after the other.
import mysql from 'mysql2/promise'
import pg from 'pg'
import t, { type Test } from 'tap'
import { fromMysql2, fromPg, receiver, Retry, type Database } from '../../src/consumer/consumer.ts'
import { door, grant, mariadbBank, newId, postgresBank, secret, signed, type Bank } from './databases.ts'

t.setTimeout(120_000)

t.test('PostgreSQL', async t => {
  const bank = await postgresBank(t)
  const client = new pg.Client({ connectionString: bank.url })
  const second = new pg.Client({ connectionString: bank.url })
  for (const one of [client, second]) {
    await one.connect()
    t.teardown(() => one.end())
  }
  await stories(t, bank, () => fromPg(client), fromPg(second))
})

t.test('MariaDB', async t => {
  const bank = await mariadbBank(t)
  if (!bank) return
  const connection = await mysql.createConnection(bank.url)
  const second = await mysql.createConnection(bank.url)
  for (const one of [connection, second]) t.teardown(() => one.end())
  await stories(t, bank, () => fromMysql2(connection), fromMysql2(second))
})

async function stories(
  t: Test,
  bank: Bank,
  single: () => Database<unknown>,
  another: Database<unknown>
): Promise<void> {
  const receive = receiver({ secrets: [secret], db: single(), consumer: 'points' })
  const send = async (id: string, work: (native: unknown) => Promise<unknown>) => {
    const { headers, body } = signed(id)
    const answer = await receive.fetch(work)(
      new Request('http://shop.test/', { method: 'POST', headers, body })
    )
    return answer.status
  }

  await t.test('the failure of one delivery takes nothing from another', async t => {
    const [begun, gate] = [door(), door()]
    const failing = send(newId(), async native => {
      await bank.run(native, grant)
      begun.open()
      await gate.opened
      throw new Retry()
    })
    await begun.opened
    const id = newId()
    const good = send(id, native => bank.run(native, grant))
    gate.open()
    t.same([await failing, await good], [503, 200])
    t.equal(await bank.granted(), 7)
    t.equal((await bank.select(`select 1 from ackbox_received where webhook_id = '${id}'`)).length, 1)
  })

  await t.test('two receivers with the same connection wait for each other', async t => {
    const [begun, gate] = [door(), door()]
    const order: string[] = []
    const first = single().begin(async () => {
      begun.open()
      await gate.opened
      order.push('first')
    })
    await begun.opened
    const second = single().begin(async () => void order.push('second'))
    gate.open()
    await Promise.all([first, second])
    t.same(order, ['first', 'second'])
  })

  await t.test('a transaction inside another one is refused, and does not wait for ever', async t => {
    const db = single()
    await t.rejects(
      db.begin(async () => await db.begin(async () => {})),
      { name: 'AdapterError', message: /Pass a pool/ }
    )
    t.equal(await db.begin(async () => 'free'), 'free')
    await t.rejects(
      db.begin(() => another.begin(() => db.begin(async () => {}))),
      { name: 'AdapterError', message: /Pass a pool/ }
    )
  })

  await t.test('what a work has started is free of its transaction after the end of it', async t => {
    const db = single()
    const ended = door()
    let later: Promise<string> | undefined
    await db.begin(async () => {
      later = ended.opened.then(() => db.begin(async () => 'free'))
    })
    ended.open()
    t.equal(await later, 'free')
  })
}
