// Each adapter with its real library and a real database: the task and the work commit together or not at all.
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { AdapterError, ddl, enqueue, outbox, type Database, type Task } from '../../src/producer/producer.ts'
import { testMariadb } from '../support/mariadb.ts'
import { only } from '../support/only.ts'
import { emptyDb } from '../support/postgres.ts'
import { enqueueStub } from './databases.ts'
import { onMariadb, onPostgres, type Library } from './libraries.ts'

t.setTimeout(600_000)

const task = (more: Partial<Task> = {}) =>
  ({
    taskNo: 'order-1-paid',
    messageCode: 'order.paid',
    messageBodyText: '{"total": 1.50, "note": "né à Zürich, 支付 ? $1 :x \'"}',
    ...more
  }) as Task
const pay = 'update account set balance = balance - 7 where id = 1'
/** Fails: the balance may not be negative. */
const overdraw = 'update account set balance = balance - 700 where id = 1'

interface Shop {
  url: string
  balance(): Promise<number>
  rows(): Promise<Record<string, unknown>[]>
  reset(): Promise<unknown>
}

t.test('PostgreSQL', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 5 }))
  await sql.unsafe(ddl.postgres)
  await sql.unsafe(ddl.postgres)
  await sql.unsafe('create table account (id int primary key, balance int not null check (balance >= 0))')
  const shop: Shop = {
    url,
    balance: async () => Number((await sql`select balance from account`)[0]?.['balance']),
    rows: async () => [...(await sql`select * from ackbox_outbox order by id`)],
    reset: () => sql.unsafe('truncate ackbox_outbox; truncate account; insert into account values (1, 10)')
  }
  for (const library of onPostgres) await t.test(library.name, t => story(t, library, shop))
})

t.test('MariaDB', async t => {
  const mariadb = await testMariadb(t)
  if (!mariadb) return
  const { pool, url } = mariadb
  await pool.query(ddl.mysql)
  await pool.query(ddl.mysql)
  await pool.query('create table account (id int primary key, balance int not null check (balance >= 0))')
  const select = async (text: string) => (await pool.query(text))[0] as Record<string, unknown>[]
  const shop: Shop = {
    url,
    balance: async () => Number((await select('select balance from account'))[0]?.['balance']),
    rows: () => select('select * from ackbox_outbox order by id'),
    reset: () =>
      pool.query('delete from ackbox_outbox; delete from account; insert into account values (1, 10)')
  }
  for (const library of onMariadb) await t.test(library.name, t => story(t, library, shop))
})

const insideAlready = {
  name: 'AdapterError',
  message: /^from\w+ was given a transaction\. A transaction of its own is needed here: pass the database\.$/
}
const isDatabase = (handle: object): handle is Database<unknown> => 'within' in handle

async function story(t: Test, library: Library, shop: Shop): Promise<void> {
  const opened = await library.open(shop.url)
  t.teardown(() => opened.close())
  t.beforeEach(() => shop.reset())

  await t.test('what was committed is there, word for word', async t => {
    const taskNo = await opened.transaction(async ({ tx, run }) => {
      await run(pay)
      return await outbox(tx, task())
    })
    t.equal(taskNo, 'order-1-paid')
    t.equal(await shop.balance(), 3)
    t.match(
      await shop.rows(),
      only({ task_no: 'order-1-paid', message_code: 'order.paid', message_body: task().messageBodyText })
    )
  })

  await t.test('a rollback leaves nothing', async t => {
    const work = opened.transaction(async ({ tx, run }) => {
      await run(pay)
      await outbox(tx, task())
      throw new Error('changed my mind')
    })
    await t.rejects(work, { message: 'changed my mind' })
    t.equal(await shop.balance(), 10)
    t.same(await shop.rows(), [])
  })

  await t.test('an error of the database inside leaves nothing', async t => {
    const work = opened.transaction(async ({ tx, run }) => {
      await outbox(tx, task())
      await run(overdraw)
    })
    await t.rejects(work)
    t.equal(await shop.balance(), 10)
    t.same(await shop.rows(), [])
  })

  const { began } = opened
  if (began) {
    await t.test('a database of the adapter begins, commits and rolls back', async t => {
      await t.rejects(
        began(async ({ tx, run }) => {
          await run(pay)
          await outbox(tx, task({ taskNo: 'never' }))
          throw new Error('no')
        }),
        { message: 'no' }
      )
      await t.rejects(began(async ({ run }) => void (await run(overdraw))))
      t.equal(await shop.balance(), 10)
      await began(async ({ tx, run }) => {
        await run(pay)
        await outbox(tx, task())
      })
      t.equal(await shop.balance(), 3)
      t.match(await shop.rows(), only({ task_no: 'order-1-paid' }))
    })
  }

  await t.test('a transaction begins no other one, and goes on as it was', async t => {
    await opened.transaction(async ({ tx, run }) => {
      await run(pay)
      if (isDatabase(tx)) {
        await t.rejects(
          tx.begin(() => outbox(tx, task())),
          insideAlready
        )
        await t.rejects(async () => await tx.requireOutside?.(), insideAlready)
      }
      await outbox(tx, task({ taskNo: 'order-2-paid' }))
    })
    t.equal(await shop.balance(), 3)
    t.match(await shop.rows(), only({ task_no: 'order-2-paid' }))
    for (const outside of Object.values(opened.outside))
      if (isDatabase(outside)) await outside.requireOutside?.()
  })

  await t.test('what is no transaction is refused, with the reason, and nothing is written', async t => {
    for (const [name, outside] of Object.entries(opened.outside)) {
      await t.rejects(outbox(outside, task()), AdapterError, name)
      await t.rejects(outbox(outside, task()), { message: /committed even if/ }, name)
    }
    t.same(await shop.rows(), [])
    await opened.transaction(({ tx }) => outbox(tx, task()))
    t.equal((await shop.rows()).length, 1, 'the same connections are fine inside one')
  })
}

t.test('enqueue calls the function of an Ackbox in the same database, by any library', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 1 })
  t.teardown(() => sql.end({ timeout: 5 }))
  await sql.unsafe(enqueueStub)
  for (const library of onPostgres) {
    await t.test(library.name, async t => {
      const opened = await library.open(url)
      t.teardown(() => opened.close())
      await opened.transaction(({ tx }) => enqueue(tx, task({ delay: 1_500 })))
      await t.rejects(
        opened.transaction(async ({ tx }) => {
          await enqueue(tx, task({ taskNo: 'never' }))
          throw new Error('no')
        })
      )
      for (const [name, outside] of Object.entries(opened.outside))
        await t.rejects(enqueue(outside, task({ taskNo: 'never' })), { message: /committed even if/ }, name)
      t.match(
        [...(await sql`delete from enqueued returning *, delay::text as delay`)],
        only({
          task_no: 'order-1-paid',
          message_body: task().messageBodyText,
          scene_type: '',
          delay: '00:00:01.5'
        })
      )
      await t.rejects(
        opened.transaction(({ tx }) => enqueue(tx, task({ uniqueBiz: true }))),
        { name: 'ProducerError', message: /enqueue does not support uniqueBiz/ }
      )
    })
  }
})
