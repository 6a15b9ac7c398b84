import pg from 'pg'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import {
  AckboxError,
  AlreadyDecided,
  answerCheck,
  client,
  fromMysql2,
  fromPg,
  halfMessage,
  UnclearCommit,
  type Client,
  type Database
} from '../../src/producer/producer.ts'
import { lyingProxy } from '../support/proxy.ts'
import { until } from '../support/until.ts'
import { mariadbShop, overdraw, pay, postgresShop, type Shop } from './databases.ts'
import { answer, fakeAckbox, type FakeAckbox, type Seen } from './fake-ackbox.ts'

t.setTimeout(600_000)

interface Scene {
  shop: Shop
  fake: FakeAckbox
  ackbox: Client
}
const task = (taskNo: string) => ({ taskNo, messageCode: 'order.paid', messageBody: { total: 7 } })

const isPost =
  (taskNo: string) =>
  ({ path, text }: Seen): boolean =>
    path === '/tasks' && text.includes(`"${taskNo}"`)

async function scene(t: Test, shop: Shop): Promise<Scene> {
  const fake = await fakeAckbox(t)
  fake.check = request => answerCheck(shop.db, request)
  return { shop, fake, ackbox: client({ url: fake.url, retryForMs: 0 }) }
}

/** A database that loses the answer to COMMIT. `isCommitted`: the commit took effect. */
const unclear = (db: Database<unknown>, isCommitted: boolean): Database<unknown> => ({
  ...db,
  async begin(work) {
    const lost = new Error('connection lost')
    await db.begin(async native => {
      await work(native)
      if (!isCommitted) throw lost
    })
    throw lost
  }
})

t.test('PostgreSQL', async t => stories(t, await scene(t, await postgresShop(t))))
t.test('MariaDB', async t => {
  const shop = await mariadbShop(t)
  if (shop) await stories(t, await scene(t, shop))
})

async function stories(t: Test, { shop, fake, ackbox }: Scene): Promise<void> {
  const { db, run } = shop
  const buy = (taskNo: string, at = db, more: (native: unknown) => Promise<void> = async () => {}) =>
    halfMessage(ackbox, at, task(taskNo), async native => {
      t.equal(fake.status(taskNo), 'PREPARED', 'nothing is delivered yet')
      await run(native, pay)
      await more(native)
      return 'bought'
    })
  const barrier = async (taskNo: string) =>
    (await shop.select(`select state from ackbox_barrier where task_no = '${taskNo}'`))[0]?.['state']

  await t.test('work that commits commits its message', async t => {
    const before = await shop.balance()
    t.match(await buy('good'), { taskNo: 'good', result: 'bought', task: { status: 'SENDING' } })
    t.equal(await shop.balance(), before - 7)
    t.equal(await barrier('good'), 'COMMITTED')
    await t.rejects(buy('good'), AlreadyDecided, 'and is done once')
    t.equal(await shop.balance(), before - 7)
  })

  await t.test('work that throws leaves nothing, and its message is rolled back', async t => {
    const before = await shop.balance()
    const no = async () => {
      throw new Error('no')
    }
    await t.rejects(buy('thrown', db, no), { message: 'no' })
    await t.rejects(buy('overdrawn', db, native => run(native, overdraw).then(() => {})))
    t.equal(await shop.balance(), before)
    t.equal(fake.status('thrown'), 'CANCELLED')
    t.equal(fake.status('overdrawn'), 'CANCELLED')
  })

  await t.test('a run that failed does not roll back the message of a second one that commits', async t => {
    const before = await shop.balance()
    const paths = () => fake.seen.map(({ path }) => path)
    const end = (run: Promise<unknown>) =>
      run.then(
        () => true,
        () => false
      )
    let [second, isOver] = [Promise.resolve(false), false]
    // Ackbox gets the rollback of the first run after the second has committed, and the commit of the second after the first has ended.
    fake.script = async ({ path }) => {
      const isSaid = () => isOver || paths().includes('/tasks/twice/commit')
      if (path === '/tasks/twice/rollback') await until('the second run has ended its work', isSaid)
      if (path === '/tasks/twice/commit') await first
      return false
    }
    const first = end(
      buy('twice', db, async () => {
        second = end(buy('twice')).finally(() => {
          isOver = true
        })
        await until(
          'the second run has prepared its message',
          () => fake.seen.filter(isPost('twice')).length === 2
        )
        throw new Error('no')
      })
    )
    t.equal(await first, false)
    const isDone = await second
    fake.script = () => false
    const { status } = await ackbox.check('twice').catch(() => ackbox.read('twice'))
    t.equal(await shop.balance(), isDone ? before - 7 : before)
    t.equal(status, isDone ? 'SENDING' : 'CANCELLED', 'the message says what became of the work')
  })

  await t.test('a commit whose answer is lost is asked for at once, and the truth is told', async t => {
    const before = await shop.balance()
    t.match(await buy('lost-after', unclear(db, true)), { result: 'bought', task: { status: 'SENDING' } })
    t.equal(await shop.balance(), before - 7)
    await t.rejects(buy('lost-before', unclear(db, false)), { message: 'connection lost' })
    t.equal(await shop.balance(), before - 7)
    t.equal(fake.status('lost-before'), 'CANCELLED')
  })

  await t.test(
    'while the truth cannot be known nothing is said of it, and Ackbox goes on to ask',
    async t => {
      fake.script = ({ path }, response) => path.endsWith('/check') && answer(response, 503, 'busy')
      await t.rejects(buy('unclear', unclear(db, true)), UnclearCommit)
      fake.script = () => false
      t.equal(fake.status('unclear'), 'PREPARED')
      t.match(await ackbox.check('unclear'), { status: 'SENDING' })
    }
  )

  await t.test('when Ackbox cannot be told of a commit, the work is done all the same', async t => {
    fake.script = ({ path }, response) => path.endsWith('/commit') && answer(response, 503, 'busy')
    t.match(await buy('untold'), { result: 'bought', task: undefined })
    fake.script = () => false
    t.match(await ackbox.check('untold'), { status: 'SENDING' })
  })

  await t.test('an answer to the commit that is not by Ackbox says nothing of the work', async t => {
    const page = '<html>Sign in</html>'
    for (const status of [200, 302, 401, 404, 408, 425]) {
      fake.script = ({ path }, response) => path.endsWith('/commit') && answer(response, status, page)
      t.match(await buy(`page-${status}`), { result: 'bought', task: undefined }, String(status))
      fake.script = () => false
      t.match(await ackbox.check(`page-${status}`), { status: 'SENDING' }, 'its check finds the commit')
    }
  })

  await t.test('work that is slower than a check which said ROLLED_BACK cannot commit', async t => {
    const before = await shop.balance()
    fake.script = async ({ path }) => {
      // The check comes between the two steps: the half message is posted, and the transaction has not begun.
      if (path === '/tasks') await answerCheck(db, { taskNo: 'slow', preparedAt: new Date().toISOString() })
      return false
    }
    await t.rejects(
      halfMessage(ackbox, db, task('slow'), () => Promise.resolve('never')),
      AlreadyDecided
    )
    fake.script = () => false
    t.equal(await shop.balance(), before)
    t.equal(fake.status('slow'), 'CANCELLED')
  })

  await t.test(
    'a message that was rolled back by hand while the work committed is an error that is told',
    async t => {
      const meanwhile = async () => void (await ackbox.rollback('by-hand'))
      const before = await shop.balance()
      await t.rejects(buy('by-hand', db, meanwhile), {
        name: 'CommitRefused',
        message: /has committed and must not run again/,
        cause: { name: 'AckboxError', code: 'TASK_ROLLED_BACK' }
      })
      t.equal(await shop.balance(), before - 7)
    }
  )

  await t.test(
    'inside a transaction of the caller no half message is prepared, and nothing is lost',
    async t => {
      const before = [await shop.balance(), fake.seen.length]
      const own = async (native: object) => {
        await run(native, pay)
        await t.rejects(buy('inside', db.dialect === 'postgres' ? fromPg(native) : fromMysql2(native)), {
          name: 'AdapterError',
          message: /was given a transaction/
        })
        throw new Error('rolled back')
      }
      await t.rejects(
        db.begin(native => own(native as object)),
        { message: 'rolled back' }
      )
      t.same([await shop.balance(), fake.seen.length], before)
    }
  )

  await t.test('when Ackbox refuses the half message the work is not begun', async t => {
    const problem = { status: 422, code: 'NO_CHECK_BACK', title: 'No checkBack' }
    fake.script = ({ path }, response) => path === '/tasks' && answer(response, 422, problem)
    await t.rejects(buy('refused'), AckboxError)
    fake.script = () => false
    t.equal(await barrier('refused'), undefined)
  })
}

t.test(
  'an error that the work swallowed has ended the transaction: its message is not committed',
  async t => {
    const { shop, fake, ackbox } = await scene(t, await postgresShop(t))
    const swallow = halfMessage(ackbox, shop.db, task('swallowed'), native =>
      shop.run(native, overdraw).catch(() => 'never mind')
    )
    await t.rejects(swallow, { code: '25P02' })
    t.equal(fake.status('swallowed'), 'CANCELLED')
    t.equal(await shop.balance(), 500)
  }
)

t.test('the connection breaks just when the server has committed', async t => {
  const { shop, fake, ackbox } = await scene(t, await postgresShop(t))
  const url = new URL(shop.url)
  let broken: (() => void) | undefined
  const port = await lyingProxy(t, new URL(shop.url), said => {
    if (!said.includes('COMMIT\0')) return said
    broken?.()
    return ''
  })
  url.host = `127.0.0.1:${port}`
  const pool = new pg.Pool({ connectionString: url.href, max: 1 })
  t.teardown(() => pool.end())
  const done = await halfMessage(ackbox, fromPg(pool), task('broken'), async tx => {
    tx.on('error', () => {})
    broken = () =>
      (tx as unknown as { connection: { stream: { destroy(): void } } }).connection.stream.destroy()
    await tx.query(pay)
  })
  t.match(done, { task: { status: 'SENDING' } })
  t.equal(fake.status('broken'), 'SENDING')
  t.equal(await shop.balance(), 493)
})

t.test('the sql of postgres.js is a database as it is', async t => {
  const { shop, fake, ackbox } = await scene(t, await postgresShop(t))
  const sql = postgres(shop.url, { max: 2 })
  t.teardown(() => sql.end({ timeout: 5 }))
  fake.check = request => answerCheck(sql, request)
  const { taskNo, result } = await halfMessage(ackbox, sql, { ...task(''), taskNo: undefined }, async tx => {
    await tx`update account set balance = balance - 7 where id = 1`
    return 'bought'
  })
  t.equal(result, 'bought')
  t.equal(fake.status(taskNo), 'SENDING', 'it has a taskNo though none was given')
  t.match(await answerCheck(sql, { taskNo, preparedAt: new Date().toISOString() }), { state: 'COMMITTED' })
})
