// A MariaDB with autocommit off for all its sessions, as in some old installations.
import mysql from 'mysql2/promise'
import t, { type Test } from 'tap'
import { fromMysql2 } from '../../src/consumer/consumer.ts'
import { sendDue } from '../../src/consumer/receipts.ts'
import { prune } from '../../src/consumer/prune.ts'
import { answerCheck, ddl, prepared, pruneBarrier } from '../../src/producer/producer.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { mariadbBank } from './databases.ts'

async function manual(t: Test) {
  const bank = await mariadbBank(t)
  if (!bank) return undefined
  const admin = await mysql.createConnection({ uri: bank.url, multipleStatements: true })
  t.teardown(() => admin.end())
  await admin.query(ddl.mysql)
  await admin.query('set global autocommit = 0')
  const pool = mysql.createPool({ uri: bank.url, connectionLimit: 2 })
  t.teardown(() => pool.end())
  return { ...bank, pool, db: fromMysql2(pool), admin }
}

t.test('receipts leave their table when they are sent, and old rows when they are pruned', async t => {
  const bank = await manual(t)
  if (!bank) return
  const fake = await fakeAckbox(t)
  let sent = 0
  fake.script = (_, response) => {
    sent++
    return answer(response, 200, { taskNo: 'a', status: 'HANDLED' })
  }
  const { admin, db } = bank
  const write = () =>
    admin.query(
      `insert into ackbox_receipt_outbox (consumer, callback_url, callback_token, receipt)
       values ('points', '${fake.url}', 'token', '{"taskNo":"a","result":"HANDLED"}')`
    )
  const left = async () => (await admin.query('select * from ackbox_receipt_outbox'))[0]
  const errors: unknown[] = []
  const options = { consumer: 'points', url: undefined, onError: (err: unknown) => void errors.push(err) }
  for (let n = 1; n <= 3; n++) {
    await write()
    await sendDue(db, options, new AbortController().signal)
    t.same(await left(), [], 'for every other connection too')
    t.equal(sent, n)
  }
  t.same(errors, [])
  await admin.query(
    "insert into ackbox_received (consumer, webhook_id, task_no, forget_after) values ('points', 'old', 'a', '2020-01-01')"
  )
  await prune(db, 'points')
  t.same((await admin.query('select * from ackbox_received'))[0], [])
})

t.test('a check is answered for good by a pool, and a single connection hears what it needs', async t => {
  const bank = await manual(t)
  if (!bank) return
  const { admin, db, pool } = bank
  const check = (taskNo: string) => ({ taskNo, preparedAt: new Date().toISOString() })
  await db.begin(native => prepared(db.within(native), 'paid'))
  t.same(await answerCheck(db, check('paid')), { state: 'COMMITTED' })
  t.same(await answerCheck(db, check('lost')), { state: 'ROLLED_BACK' })
  t.match((await admin.query("select state from ackbox_barrier where task_no = 'lost'"))[0], [
    { state: 'ROLLED_BACK' }
  ])
  await admin.query("update ackbox_barrier set created_at = '2020-01-01'")
  await pruneBarrier(db)
  t.same((await admin.query('select * from ackbox_barrier'))[0], [])
  const connection = await pool.getConnection()
  t.teardown(() => connection.release())
  const single = fromMysql2(connection)
  await t.rejects(answerCheck(single, check('other')), /with autocommit on/)
  await t.rejects(
    single.begin(() => Promise.resolve()),
    /fromMysql2 needs autocommit, which is off in this session/
  )
})
