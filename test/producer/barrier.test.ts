import { randomUUID } from 'node:crypto'
import knex from 'knex'
import t, { type Test } from 'tap'
import {
  AlreadyDecided,
  answerCheck,
  fromKnex,
  prepared,
  ProducerError,
  pruneBarrier,
  type CheckRequest,
  type Tx
} from '../../src/producer/producer.ts'
import { mariadbShop, pay, postgresShop, type Shop } from './databases.ts'
import { only } from '../support/only.ts'

t.setTimeout(600_000)

const days = (n: number) => new Date(Date.now() - n * 86_400_000).toISOString()
const check = (taskNo: string, preparedAt = days(0)): CheckRequest => ({ taskNo, preparedAt })

t.test('PostgreSQL', async t => stories(t, await postgresShop(t)))
t.test('MariaDB', async t => {
  const shop = await mariadbShop(t)
  if (!shop) return
  await stories(t, shop)

  await t.test('a wait that was too long is no duplicate, whatever the number of the task', async t => {
    // Knex writes the values of a statement into the message of its error.
    const shopKnex = knex({ client: 'mysql2', connection: shop.url })
    t.teardown(() => shopKnex.destroy())
    const taskNo = 'order-1062-paid'
    await shop.db.begin(async native => {
      await prepared(shop.db.within(native), taskNo)
      const late = shopKnex.transaction(async trx => {
        await trx.raw('set session innodb_lock_wait_timeout = 1')
        await prepared(fromKnex(trx), taskNo)
      })
      await t.rejects(late, { code: 'ER_LOCK_WAIT_TIMEOUT' })
    })
  })
})

t.test(
  'what a database ends, as MariaDB does for a row that has changed, leaves the check without an answer',
  async t => {
    for (const errno of [1020, 1205, 1213]) {
      const tx: Tx = {
        dialect: 'mysql',
        query: text =>
          Promise.reject(Object.assign(new Error(), { errno: text.includes('savepoint') ? 1305 : errno }))
      }
      t.same(await answerCheck(tx, check('x')), { state: 'UNKNOWN' })
    }
  }
)

async function stories(t: Test, shop: Shop): Promise<void> {
  const { db, run, select } = shop
  const business = (taskNo: string, work: (native: unknown) => Promise<void> = async () => {}) =>
    db.begin(async native => {
      await prepared(db.within(native), taskNo)
      await run(native, pay)
      await work(native)
    })

  await t.test('a check says what became of the transaction', async t => {
    await business('done')
    t.same(await answerCheck(db, check('done')), { state: 'COMMITTED' })
    await t.rejects(
      business('undone', async () => {
        throw new Error('no')
      }),
      { message: 'no' }
    )
    t.same(await answerCheck(db, check('undone')), { state: 'ROLLED_BACK' })
    t.same(await answerCheck(db, check('undone')), { state: 'ROLLED_BACK' }, 'and says it again')
    t.same(await answerCheck(db, check('never-begun')), { state: 'ROLLED_BACK' })
  })

  await t.test('while the transaction is under way a check is UNKNOWN, and holds nothing up', async t => {
    await business('slow', async () => {
      t.same(await answerCheck(db, check('slow')), { state: 'UNKNOWN' })
    })
    t.same(await answerCheck(db, check('slow')), { state: 'COMMITTED' })
  })

  await t.test('a transaction that comes after its check was answered ROLLED_BACK fails', async t => {
    const before = await shop.balance()
    t.same(await answerCheck(db, check('late')), { state: 'ROLLED_BACK' })
    await t.rejects(business('late'), AlreadyDecided)
    await t.rejects(business('late'), { message: /half message late is decided/ })
    t.equal(await shop.balance(), before)
    t.same(await answerCheck(db, check('late')), { state: 'ROLLED_BACK' })
  })

  await t.test('the same business twice is done once', async t => {
    await business('twice')
    const before = await shop.balance()
    await t.rejects(business('twice'), AlreadyDecided)
    t.equal(await shop.balance(), before)
  })

  await t.test(
    'checks and transactions at once: an answer and what was committed never disagree',
    async t => {
      const taskNos = Array.from({ length: 40 }, () => `race-${randomUUID()}`)
      const ends = await Promise.all(
        taskNos.map(async (taskNo, i) => {
          const transaction = db
            .begin(native => prepared(db.within(native), taskNo))
            .then(
              () => true,
              (err: unknown) => {
                if (err instanceof AlreadyDecided) return false
                throw err
              }
            )
          const asked = [answerCheck(db, check(taskNo)), ...(i % 2 ? [answerCheck(db, check(taskNo))] : [])]
          const [isCommitted, ...answers] = await Promise.all([transaction, ...asked])
          return answers.every(({ state }) => state === 'UNKNOWN' || (state === 'COMMITTED') === isCommitted)
        })
      )
      t.ok(ends.every(Boolean))
      for (const taskNo of taskNos) t.not((await answerCheck(db, check(taskNo))).state, 'UNKNOWN')
    }
  )

  await t.test('of what is older than the rows of the barrier nothing is claimed', async t => {
    await business('old-done')
    t.same(await answerCheck(db, check('old-done', days(29.1))), { state: 'COMMITTED' }, 'a row is a row')
    t.same(await answerCheck(db, check('old-gone', days(29.1))), { state: 'UNKNOWN' })
    t.same(await answerCheck(db, check('old-gone', days(28.9))), { state: 'ROLLED_BACK' })
  })

  await t.test('pruning takes rows of more than 30 days, and no others', async t => {
    await business('kept')
    await business('pruned')
    const old = db.dialect === 'postgres' ? "now() - interval '31 days'" : 'now() - interval 31 day'
    await select(`update ackbox_barrier set created_at = ${old} where task_no = 'pruned'`)
    await pruneBarrier(db)
    const rows = await select("select task_no from ackbox_barrier where task_no in ('kept', 'pruned')")
    t.match(rows, only({ task_no: 'kept' }))
  })

  await t.test('pruning waits for no transaction that is still open', async t => {
    const old = db.dialect === 'postgres' ? "now() - interval '31 days'" : 'now() - interval 31 day'
    await business('long-done')
    await select(`update ackbox_barrier set created_at = ${old}`)
    await business('still-open', async () => {
      await t.resolves(pruneBarrier(db))
      t.same(await select('select task_no from ackbox_barrier'), [])
    })
    t.match(await select('select task_no from ackbox_barrier'), only({ task_no: 'still-open' }))
  })

  await t.test('the barrier in the wrong place is refused', async t => {
    await t.rejects(prepared(db, 'nowhere'), { message: /committed even if/ })
    await t.rejects(
      db.begin(native => answerCheck(db.within(native), check('nowhere'))),
      { name: 'ProducerError', message: /its answer must be committed before it is given/ }
    )
    await t.rejects(answerCheck(db, { taskNo: 'nowhere' } as CheckRequest), ProducerError)
    t.same(await select("select task_no from ackbox_barrier where task_no = 'nowhere'"), [])
  })
}
