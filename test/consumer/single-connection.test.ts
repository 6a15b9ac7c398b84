// A receiver whose database is one connection and no pool: its transactions come one after the other.
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import mysql from 'mysql2/promise'
import pg from 'pg'
import t, { type Test } from 'tap'
import { fromMysql2, fromPg, receiver, Retry, type Database } from '../../src/consumer/consumer.ts'
import { door, grant, mariadbBank, newId, postgresBank, secret, signed, type Bank } from './databases.ts'

t.setTimeout(2_400_000)

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

const idle = () => ({ query: async () => ({ rows: [] }) })

t.test('a work that starts the next one leaves nothing of itself to it', async t => {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  const ways: [string, (step: () => void, ended: Promise<unknown>) => void][] = [
    ['after its own end', (step, ended) => void ended.then(step)],
    ['before its own end', step => step()]
  ]
  for (const [name, start] of ways) {
    const [last, gate] = [door(), door()]
    const clients: WeakRef<object>[] = []
    const step = (): void => {
      const client = idle()
      clients.push(new WeakRef(client))
      const ended = door()
      const work = async (): Promise<void> => {
        if (clients.length < 100) return start(step, ended.opened)
        last.open()
        await gate.opened
      }
      void fromPg(client)
        .begin(work)
        .then(() => ended.open())
    }
    step()
    await last.opened
    // A WeakRef keeps its object until the end of the task in which it was made.
    await new Promise(setImmediate)
    collect()
    const kept = clients.filter(client => client.deref()).length
    t.ok(kept < 10, `${name}: ${kept} of 100 clients are kept`)
    gate.open()
  }
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
    const ended = door()
    await t.rejects(
      db.begin(async () => {
        const later = await another.begin(async () => [ended.opened.then(() => db.begin(async () => {}))])
        ended.open()
        await later[0]
      }),
      { name: 'AdapterError', message: /Pass a pool/ },
      'nor by what a work inside of it has left behind'
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
