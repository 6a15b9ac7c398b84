// Transactions that the database ends while their work still runs: after a deadlock on MySQL, after any error on PostgreSQL.
import mysql from 'mysql2/promise'
import t from 'tap'
import { fromMysql2, receiver, type Database } from '../../src/consumer/consumer.ts'
import { until } from '../support/until.ts'
import {
  door,
  grant,
  mariadbBank,
  newId,
  postgresBank,
  secret,
  signed,
  snapshotIsolation,
  type Bank
} from './databases.ts'

t.setTimeout(600_000)

/** Rows for a deadlock. InnoDB rolls back the smaller transaction, not the one that has written a hundred rows. */
const hot = 'create table hot (id int primary key, n int not null); insert into hot values (1, 0), (2, 0)'
const touch = (id: number): string => `update hot set n = n + 1 where id = ${id}`
const heavy = `insert into hot values ${Array.from({ length: 100 }, (_, n) => `(${n + 100}, 0)`).join()}`

/** Rejects with the error of a deadlock. The other transaction is rolled back later. */
async function deadlock({ db, run }: Bank, native: unknown): Promise<void> {
  const [isHeavy, done] = [door(), door()]
  await run(native, touch(1))
  const other = db.begin(async its => {
    await run(its, heavy)
    await run(its, touch(2))
    const waiting = run(its, touch(1))
    isHeavy.open()
    await waiting
    await done.opened
    throw new Error('undone')
  })
  await isHeavy.opened
  try {
    await run(native, touch(2))
  } finally {
    done.open()
    await other.catch(() => {})
  }
}

const isDeadlock = { code: 'ER_LOCK_DEADLOCK' }

t.test('MariaDB', async t => {
  const bank = await mariadbBank(t)
  if (!bank) return
  const { db } = bank
  for (const statement of hot.split('; ')) await bank.select(statement)
  const points = receiver({ secrets: [secret], db, consumer: 'points' })
  const pay = async (native: unknown) => void (await bank.run(native, grant))
  const handle = (id: string, work: (native: unknown) => Promise<unknown>, headers = {}) =>
    db.begin(native => points.once(db.within(native), signed(id, headers), () => work(native)))

  await t.test('a deadlock takes back its own delivery, and not what another attempt has done', async t => {
    const id = newId()
    const [begun, go, granted, second] = [door(), door(), door(), door()]
    const first = handle(id, async native => {
      begun.open()
      await go.opened
      await deadlock(bank, native)
    })
    await begun.opened
    const other = handle(id, async native => {
      await pay(native)
      granted.open()
      await second.opened
    })
    await until('the second attempt waits for the first', async () => {
      const [row] = await bank.select("show global status like 'Innodb_row_lock_current_waits'")
      return row?.['Value'] === '1'
    })
    go.open()
    const failed = t.rejects(first, isDeadlock)
    await granted.opened
    second.open()
    await failed
    t.match(await other, { first: true })
    t.match(await handle(id, pay), { first: false }, 'the third one is a repeat')
    t.equal(await bank.granted(), 7)
  })

  await t.test(
    'a row that has changed since the transaction began to read fails, and comes again',
    { skip: (await snapshotIsolation(bank)) === undefined && 'MySQL has no innodb_snapshot_isolation' },
    async t => {
      // The default since MariaDB 11.6.2.
      await bank.select('set global innodb_snapshot_isolation = on')
      t.teardown(() => bank.select('set global innodb_snapshot_isolation = off'))
      const own = await mysql.createConnection(bank.url)
      t.teardown(() => own.end())
      const told: unknown[] = []
      const onError = (err: unknown): void => void told.push(err)
      const late = receiver({ secrets: [secret], db: fromMysql2(own), consumer: 'points', onError })
      const before = await bank.granted()
      const answer = await late.fetch(async tx => {
        await tx.query('select granted from points')
        await bank.select(grant)
        await tx.query(grant)
      })(new Request('http://shop.test/', { method: 'POST', ...signed(newId()) }))
      t.same([answer.status, answer.headers.get('retry-after'), told], [503, '1', []])
      t.equal(await bank.granted(), before + 7)
    }
  )

  await t.test('a deadlock that the work swallows is not taken for done', async t => {
    const id = newId()
    const headers = { 'ackbox-callback-token': 'token', 'ackbox-callback-url': 'http://127.0.0.1:1/callback' }
    const swallowing = handle(id, (native: unknown) => deadlock(bank, native).catch(() => {}), headers)
    await t.rejects(swallowing, { name: 'AdapterError', message: /transaction has ended/ })
    t.same(await bank.select('select 1 from ackbox_receipt_outbox'), [], 'and no receipt says so')
    t.match(await handle(id, async () => {}), { first: true }, 'it comes again')
  })
})

t.test('PostgreSQL', async t => {
  const bank = await postgresBank(t)
  const { db } = bank
  const points = receiver({ secrets: [secret], db, consumer: 'points' })
  const handle = (id: string, work: (native: unknown, db: Database<unknown>) => Promise<unknown>) =>
    db.begin(native => points.once(db.within(native), signed(id), () => work(native, db)))

  await t.test('an error that the work swallows is not taken for done', async t => {
    const id = newId()
    const swallowing = handle(id, async native => {
      await bank.run(native, grant)
      await bank.run(native, 'select 1 / 0').catch(() => {})
    })
    await t.rejects(swallowing, { code: '25P02' })
    t.equal(await bank.granted(), 0)
    t.match(await handle(id, native => bank.run(native, grant)), { first: true })
    t.equal(await bank.granted(), 7)
  })

  await t.test('a ROLLBACK of the work itself is not taken for done', async t => {
    const id = newId()
    const before = await bank.granted()
    const undoing = handle(id, async native => {
      await bank.run(native, grant)
      await bank.run(native, 'rollback')
      return { granted: 7 }
    })
    await t.rejects(undoing, { name: 'AdapterError', message: /transaction has ended/ })
    t.match(await handle(id, native => bank.run(native, grant)), { first: true }, 'it comes again')
    t.equal((await bank.granted()) - before, 7)
  })

  await t.test('work that has ended its transaction takes nothing back from another attempt', async t => {
    const id = newId()
    const before = await bank.granted()
    const late = handle(id, async native => {
      await bank.run(native, 'rollback')
      await handle(id, its => bank.run(its, grant))
      throw new Error('after the other attempt')
    })
    await t.rejects(late, { message: 'after the other attempt' })
    t.match(await handle(id, native => bank.run(native, grant)), { first: false }, 'the third is a repeat')
    t.equal((await bank.granted()) - before, 7)
  })
})
