// Races in which a task that waits for others could be forgotten.
import t, { type Test } from 'tap'
import { closeDependencies, findWaiting, insertDependents, isNotStored } from '../../src/db/dependents.ts'
import { openDb, type Sql } from '../../src/db/pool.ts'
import { applyMoves } from '../../src/db/transitions.ts'
import { lowestUuid } from '../../src/domain/ids.ts'
import type { Move } from '../../src/domain/transitions.ts'
import { taskRequest } from '../support/task-request.ts'
import { counted } from '../support/counted.ts'
import { newTask } from '../support/new-task.ts'
import { lockWaits, testDb } from '../support/postgres.ts'
import { setup, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

const after = (...taskNos: string[]) => ({ after: { taskNos, codes: null } })

const idOf = async ({ sql }: Story, taskNo: string): Promise<string> =>
  (await sql<[{ id: string }]>`select id from task where task_no = ${taskNo}`)[0].id
const ends = (taskId: string): Move => ({
  taskId,
  downstream: 'warehouse',
  attempt: 1,
  name: 'handled',
  handledBy: 'send'
})
const blocked = async ({ sql }: Story): Promise<string[]> =>
  (
    await sql<{ task_no: string }[]>`
      select t.task_no from delivery d join task t on t.id = d.task_id where d.phase = 'BLOCKED' order by 1`
  ).map(row => row.task_no)

/** Two processes on one database. Neither sends anything. */
async function two(t: Test): Promise<[Story, Story]> {
  const { url, sql } = await testDb(t, { max: 6 })
  const other = openDb(url, { max: 6 })
  t.teardown(() => other.end())
  const stories = [await setup(t, { sql }), await setup(t, { sql: other })] as const
  for (const { queue } of stories) queue.mode = 'hold'
  return [...stories]
}

t.test(
  'one is accepted while what it waits for ends elsewhere: never does it miss that, 300 times',
  async t => {
    const [producer, worker] = await two(t)
    const firsts = Array.from({ length: 300 }, (_, n) => `first:${n}`)
    await producer.accept.many(firsts.map(taskNo => taskRequest({ taskNo })))
    const ids = await Promise.all(firsts.map(taskNo => idOf(producer, taskNo)))
    await producer.post({ ...after('first:0'), taskNo: 'open' })
    await worker.around.refresh()
    for (const [n, taskNo] of firsts.entries()) {
      const accept = () => producer.accept(taskRequest({ taskNo: `second:${n}`, ...after(taskNo) }))
      const end = () => worker.record({ move: ends(ids[n] ?? '') })
      // The accept starts first, the end starts first, or the end is already running.
      if (n % 3 === 0) await Promise.all([accept(), end()])
      else if (n % 3 === 1) await Promise.all([end(), accept()])
      else {
        const [ending] = [end(), await new Promise(resolve => setImmediate(resolve))]
        await Promise.all([ending, accept()])
      }
    }
    await Promise.all([producer.quiet(), worker.quiet()])
    t.same(await blocked(producer), [], 'and no sweep was needed')
    t.same(await findWaiting(producer.sql, lowestUuid, 10), [])
  }
)

t.test(
  'many at once at two processes: of 200 with two prerequisites each, all go, and none before both',
  async t => {
    const [producer, worker] = await two(t)
    const firsts = Array.from({ length: 20 }, (_, n) => `first:${n}`)
    await producer.accept.many(firsts.map(taskNo => taskRequest({ taskNo })))
    const ids = await Promise.all(firsts.map(taskNo => idOf(producer, taskNo)))
    await worker.accept(taskRequest({ taskNo: 'open', ...after('first:0') }))
    await Promise.all([
      ...Array.from({ length: 200 }, (_, n) =>
        producer.accept(
          taskRequest({ taskNo: `second:${n}`, ...after(firsts[n % 20]!, firsts[(n * 7 + 3) % 20]!) })
        )
      ),
      ...ids.map((id, n) => (n % 2 ? producer : worker).record({ move: ends(id) }))
    ])
    await Promise.all([producer.quiet(), worker.quiet()])
    t.same(await blocked(producer), [])
    const early = await producer.sql`
    select from dependency x join delivery d on d.task_id = x.task_id join delivery p on p.task_id = x.after_id
    where d.phase <> 'BLOCKED' and d.updated_at < p.handled_at`
    t.equal(early.length, 0)
  }
)

t.test('a process that ends one without knowing yet that somebody waits leaves it to the sweep', async t => {
  const [producer, worker] = await two(t)
  const first = await producer.post()
  const second = await producer.post(after(first))
  await worker.record({ move: ends(await idOf(producer, first)) })
  await worker.quiet()
  t.same(await blocked(producer), [second], 'it did not look')
  await worker.around.refresh()
  await worker.succession.sweep()
  await worker.quiet()
  t.same(await blocked(producer), [])
})

t.test('a process that dies between the end of one and its look leaves it to the sweep', async t => {
  const [producer, worker] = await two(t)
  const firsts = Array.from({ length: 30 }, (_, n) => `first:${n}`)
  await producer.accept.many(firsts.map(taskNo => taskRequest({ taskNo })))
  await producer.accept.many(
    firsts.map(taskNo => taskRequest({ taskNo: `after ${taskNo}`, ...after(taskNo) }))
  )
  await producer.quiet()
  const moves = await Promise.all(firsts.map(async taskNo => ({ move: ends(await idOf(producer, taskNo)) })))
  await applyMoves(producer.sql, moves)
  t.equal((await blocked(producer)).length, 30)
  await worker.around.refresh()
  await worker.succession.sweep()
  t.same(await blocked(producer), [])
})

t.test(
  'one that dies after it let a task go, before it said so: the sweep closes the row and moves nothing',
  async t => {
    const [producer, worker] = await two(t)
    const first = await producer.post()
    const second = await producer.post(after(first))
    await producer.quiet()
    const [id, taskId] = [await idOf(producer, first), await idOf(producer, second)]
    await applyMoves(producer.sql, [{ move: ends(id) }])
    await applyMoves(producer.sql, [
      { move: { taskId, downstream: 'warehouse', attempt: 0, name: 'unblock', afterMs: 0 } }
    ])
    await worker.around.refresh()
    await worker.succession.sweep()
    t.same(await findWaiting(producer.sql, lowestUuid, 10), [])
    t.match(await producer.delivery(second), { phase: 'WAITING', attempt: 0 })
  }
)

t.test(
  'two that each saw another prerequisite done do not forget the task: it goes with the last one',
  async t => {
    const [producer] = await two(t)
    const { post, record, quiet, redeliver, succession, sql } = producer
    const [a, b] = [await post({ taskNo: 'a' }), await post({ taskNo: 'b' })]
    for (const orderingKey of [undefined, 'order-1'])
      await post({ ...after(a, b), taskNo: `waits ${orderingKey}`, ...(orderingKey && { orderingKey }) })
    await quiet()
    const [aId, bId] = [await idOf(producer, a), await idOf(producer, b)]
    const waiting = await findWaiting(sql, lowestUuid, 10)
    // A first process sees `a` done and `b` SENDING, and stalls.
    await applyMoves(sql, [{ move: ends(aId) }])
    await redeliver(a, { force: true })
    // A second one sees `b` done and `a` SENDING.
    await record({ move: ends(bId) })
    await quiet()
    t.equal((await blocked(producer)).length, 2)
    await closeDependencies(
      sql,
      [],
      waiting.map(id => [id, aId])
    )
    t.equal((await blocked(producer)).length, 2)
    await applyMoves(sql, [
      { move: { taskId: aId, downstream: 'warehouse', attempt: 1, name: 'settle', handledBy: 'operator' } }
    ])
    await succession.sweep()
    await quiet()
    t.same(await blocked(producer), [])
    t.same(await findWaiting(sql, lowestUuid, 10), [])
  }
)

t.test(
  'of a task whose last two prerequisites are closed at once, one stays open for the look after it',
  async t => {
    const [one, other] = await two(t)
    const [a, b] = [await one.post({ taskNo: 'a' }), await one.post({ taskNo: 'b' })]
    await one.post({ ...after(a, b), taskNo: 'waits' })
    const [aId, bId, id] = [await idOf(one, a), await idOf(one, b), await idOf(one, 'waits')]
    let second: Promise<void> | undefined
    await one.sql.begin(async transaction => {
      await closeDependencies(transaction as unknown as Sql, [], [[id, aId]])
      second = closeDependencies(other.sql, [], [[id, bId]])
      await until('it waits', async () => (await lockWaits(one.sql)) === 1)
    })
    await second
    t.same(await findWaiting(one.sql, lowestUuid, 10), [id])
  }
)

t.test('the sweep goes through thousands that wait, and past those that cannot go yet', async t => {
  const [producer] = await two(t)
  const { accept, quiet, succession, sql } = producer
  await accept.many(['never', 'done'].map(taskNo => taskRequest({ taskNo })))
  for (let n = 0; n < 6; n++)
    await accept.many(
      Array.from({ length: 1_000 }, (_, at) =>
        taskRequest({ taskNo: `${n}:${at}`, ...after(at === 999 ? 'done' : 'never') })
      )
    )
  await quiet()
  await applyMoves(sql, [{ move: ends(await idOf(producer, 'done')) }])
  // A sweep reads 5,000 rows and the youngest ones. Two sweeps read them all.
  await succession.sweep()
  await succession.sweep()
  const rows = await sql<{ task_no: string }[]>`
    select t.task_no from delivery d join task t on t.id = d.task_id where d.phase = 'WAITING'`
  t.same(
    rows.map(row => row.task_no).toSorted(),
    [0, 1, 2, 3, 4, 5].map(n => `${n}:999`)
  )
})

t.test('many that wait for one are all let go, however many', async t => {
  const [producer] = await two(t)
  const { accept, quiet, record } = producer
  await producer.post({ taskNo: 'first' })
  for (let n = 0; n < 2; n++)
    await accept.many(
      Array.from({ length: 700 }, (_, at) => taskRequest({ taskNo: `${n}:${at}`, ...after('first') }))
    )
  await quiet()
  await record({ move: ends(await idOf(producer, 'first')) })
  await quiet()
  t.equal((await blocked(producer)).length, 0)
})

t.test(
  'somebody else posts the first of a batch at the same moment: the others wait for what is stored',
  async t => {
    const [one, other] = await two(t)
    for (let n = 0; n < 30; n++) {
      const chain = (who: string) => [
        taskRequest({ taskNo: `${who}:root:${n}` }),
        taskRequest({ taskNo: `a:${n}`, messageBody: '{}', ...after(`${who}:root:${n}`) }),
        taskRequest({ taskNo: `${who}:b:${n}`, ...after(`a:${n}`) }),
        taskRequest({ taskNo: `${who}:c:${n}`, ...after(`${who}:b:${n}`, `a:${n}`) })
      ]
      const answers = await Promise.all([one.accept.many(chain('one')), other.accept.many(chain('other'))])
      for (const [, , b, c] of answers) t.same([b?.kind, c?.kind], ['created', 'created'])
    }
    await Promise.all([one.quiet(), other.quiet()])
    const dangling = await one.sql`
    select from dependency x where not exists (select from task t where t.id = x.after_id)`
    t.equal(dangling.length, 0)
  }
)

t.test('what was to be stored in the same statement and was not takes back all of it', async t => {
  const { sql } = await testDb(t)
  const story = await setup(t, { sql })
  story.queue.mode = 'hold'
  const task = (taskNo: string, id: string) => newTask({ id, taskNo, deliveries: [] })
  const [id, other] = ['01900000-0000-7000-8000-000000000001', '01900000-0000-7000-8000-000000000002']
  await story.post({ taskNo: 'taken' })
  const tasks = [task('taken', id), task('waits', other)]
  const err = await insertDependents(sql, tasks, [{ taskId: other, afterId: id, isNew: true }]).catch(
    (thrown: unknown) => thrown
  )
  t.ok(isNotStored(err))
  t.equal((await sql`select from task`).length, 1)
})

t.test('a task that waits for nobody costs no statement more, and one more while somebody waits', async t => {
  const { sql, statements } = counted((await testDb(t, { max: 4 })).sql)
  const story = await setup(t, { sql })
  const each = async (): Promise<number> => {
    const before = statements()
    for (let n = 0; n < 10; n++) {
      await story.post()
      await story.quiet()
    }
    return (statements() - before) / 10
  }
  t.equal(await each(), 2, 'its acceptance and its end')
  story.queue.mode = 'hold'
  const first = await story.post()
  await story.post(after(first))
  await story.quiet()
  story.queue.mode = 'deliver'
  t.equal(await each(), 3, 'and a look')
  await story.queue.run()
  await story.quiet()
  await story.around.refresh()
  t.equal(await each(), 2)
})

t.test('a head that is requeued while its wait ends is looked at once more', async t => {
  const story = await setup(t)
  story.queue.mode = 'hold'
  await story.post({ taskNo: 'first' })
  await story.post({ taskNo: 'second', orderingKey: 'k', ...after('first') })
  const id = await idOf(story, 'second')
  const key = { taskId: id, downstream: 'warehouse', attempt: 0 }
  await story.record({ move: { ...key, name: 'fail', reason: 'EXPIRED', orderingKey: 'k' } })
  // The look at the key that follows the end.
  await story.quiet()
  await story.sql`delete from promotion`
  await closeDependencies(story.sql, [id], [])
  t.equal((await story.sql`select from promotion where ordering_key = 'k'`).length, 1)
})
