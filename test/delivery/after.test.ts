// Tasks that wait for others. PostgreSQL is real. The test controls the downstream and the clock.
import t, { type Test } from 'tap'
import { readTask } from '../../src/db/lists.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { readsOf } from '../support/postgres.ts'
import { until } from '../support/until.ts'
import { setup, type Story, type SetupOptions } from '../support/setup.ts'

const after = (...taskNos: string[]) => ({ after: { taskNos, codes: null } })
const sent = (downstream: Story['downstream']) => downstream.requests.map(one => one.taskNo)

/** A story whose dispatcher keeps running, so that every task that no longer waits is sent. */
async function running(t: Test, options: SetupOptions = {}): Promise<Story> {
  const story = await setup(t, options)
  story.dispatching()
  return story
}

t.test(
  'a task waits until the one before it is HANDLED, receipt included, and goes at once then',
  async t => {
    const { post, quiet, delivery, downstream, receive, read } = await running(t, {
      downstream: { needCallback: true }
    })
    const first = await post()
    const second = await post(after(first))
    await quiet()
    t.same(sent(downstream), [first], 'its receipt is owed: nothing went after it')
    const waiting = await delivery(second)
    t.match(waiting, { status: 'SENDING', phase: 'BLOCKED', attempt: 0, triesLeft: 10 })
    t.notHas(waiting, 'nextActionAt', 'nobody wants to read of the year 9999')
    t.match(await read(second), { after: only(first) })
    t.match(await read(first), { before: only(second) })
    await receive({ taskNo: first })
    await downstream.received(2)
    t.same(sent(downstream), [first, second])
    t.match(await read(second), { after: only(first) }, 'it still says so')
  }
)

t.test('what it waits for is HANDLED already: it goes at once', async t => {
  const { post, quiet, delivery, sql } = await running(t)
  const first = await post()
  await quiet()
  const second = await post(after(first))
  await until('it is HANDLED', async () => (await delivery(second)).status === 'HANDLED')
  await quiet()
  t.equal((await sql`select from dependency where done_at is null`).length, 0)
})

t.test('of a chain of 32 that is posted as one batch, each goes after the one before', async t => {
  const story = await running(t)
  const { accept, downstream } = story
  const chain = Array.from({ length: 32 }, (_, n) => `link:${n}`)
  const answers = await accept.many(
    chain.map((taskNo, n) => taskRequest({ taskNo, ...(n > 0 && after(chain[n - 1]!)) }))
  )
  t.ok(answers.every(one => one.kind === 'created'))
  await downstream.received(32)
  t.same(sent(story.downstream), chain)
})

t.test('of a diamond the last one goes when both its sides are HANDLED', async t => {
  const story = await running(t)
  const { accept, downstream } = story
  downstream.holds = true
  await accept.many([
    taskRequest({ taskNo: 'top' }),
    taskRequest({ taskNo: 'left', ...after('top') }),
    taskRequest({ taskNo: 'right', ...after('top') }),
    taskRequest({ taskNo: 'bottom', ...after('left', 'right') })
  ])
  await downstream.received(1)
  downstream.answer()
  await downstream.received(3)
  t.same(sent(story.downstream).slice(1).toSorted(), ['left', 'right'])
  const one = sent(downstream)[1] ?? ''
  downstream.answer()
  await until('one side is HANDLED', async () => (await story.delivery(one)).status === 'HANDLED')
  await story.succession.idle()
  t.match(await story.delivery('bottom'), { phase: 'BLOCKED' })
  downstream.answer()
  await downstream.received(4)
  t.equal(sent(story.downstream)[3], 'bottom')
  downstream.answer()
})

t.test('one waits for 32, and for the same one twice as for once', async t => {
  const { accept, post, downstream, delivery, queue } = await running(t)
  queue.mode = 'hold'
  const many = Array.from({ length: 32 }, (_, n) => `one:${n}`)
  await accept.many(many.map(taskNo => taskRequest({ taskNo })))
  const last = await post(after(...many.slice(0, 31), many[0]!))
  t.match(await delivery(last), { phase: 'BLOCKED' })
  queue.mode = 'deliver'
  await queue.run()
  await downstream.received(33)
  t.match(await delivery(many[5]!), { status: 'HANDLED' })
})

t.test('what does not exist cannot be waited for, and all of it is said at once', async t => {
  const { accept, post, sql } = await setup(t)
  const there = await post()
  t.match(await accept(taskRequest(after('nobody', there, 'nothing'))), {
    kind: 'invalid',
    pointer: '/after/0',
    errors: only({ pointer: '/after/0' }, { pointer: '/after/2' })
  })
  t.match(await accept(taskRequest({ taskNo: 'itself', ...after('itself') })), {
    kind: 'invalid',
    pointer: '/after/0'
  })
  t.equal((await sql`select from task`).length, 1)
  t.equal((await sql`select from dependency`).length, 0)
})

t.test(
  'in a batch earlier ones count as existing, and later ones do not: so there are no circles',
  async t => {
    const { accept } = await setup(t)
    const kinds = async (...tasks: Parameters<typeof taskRequest>[0][]) =>
      (await accept.many(tasks.map(one => taskRequest(one)))).map(one => one.kind)
    t.same(
      await kinds(
        { taskNo: 'early', ...after('plain') },
        { taskNo: 'plain' },
        { taskNo: 'b', ...after('c') },
        { taskNo: 'c', ...after('b') },
        { taskNo: 'd', ...after('plain') },
        { taskNo: 'e', ...after('d', 'plain') },
        { taskNo: 'f', ...after('b') }
      ),
      ['invalid', 'created', 'invalid', 'invalid', 'created', 'created', 'invalid']
    )
    t.same(await kinds({ taskNo: 'now', ...after('plain') }, { taskNo: 'plain', messageBody: '0' }), [
      'created',
      'conflict'
    ])
  }
)

t.test('a half message, and one that was rolled back, cannot be waited for', async t => {
  const { accept, post, sql } = await setup(t)
  for (const state of ['PREPARED', 'CANCELLED']) {
    const taskNo = await post()
    await sql`update task set state = ${state} where task_no = ${taskNo}`
    const answer = await accept(taskRequest(after(taskNo)))
    t.match(answer, { kind: 'invalid', pointer: '/after/0' })
    t.match(answer, { detail: new RegExp(state) })
  }
})

t.test('a key learns nothing of the tasks of others: what it may not see does not exist', async t => {
  const { accept, post, read, handlers, sql } = await setup(t)
  handlers.set('secret', { ...handlers.get('order.paid')!, messageCode: 'secret' })
  const secret = await post({ messageCode: 'secret' })
  const own = await post()
  const bound = (...taskNos: string[]) => taskRequest({ after: { taskNos, codes: ['order.paid'] } })
  const [hidden, missing] = [await accept(bound(secret)), await accept(bound('nobody'))]
  t.same(hidden, missing)
  t.match(hidden, { kind: 'invalid' })
  t.match(await accept(bound(own)), { kind: 'created' })
  // A key with more rights makes a task wait for both. A key sees only the prerequisites and dependents that it may read.
  const waits = await post(after(secret, own))
  t.match(await read(waits), { after: only(...[secret, own].toSorted()) })
  t.same((await readTask(readsOf(t, sql), waits, ['order.paid']))?.after, [own])
  t.same((await readTask(readsOf(t, sql), secret, ['secret']))?.before, undefined)
})

t.test('posted again it is the same, even when what it waited for is gone', async t => {
  const { accept, post, sql, quiet } = await setup(t)
  const first = await post()
  await quiet()
  const one = taskRequest(after(first))
  t.match(await accept(one), { kind: 'created', task: { status: 'SENDING', after: only(first) } })
  await quiet()
  await sql`delete from task where task_no = ${first}`
  t.match(await accept(one), { kind: 'same', task: { taskNo: one.taskNo, after: only(first) } })
  t.match(await accept({ ...one, contentHash: 'another' }), { kind: 'conflict' })
})

t.test(
  'posted several times at once, one is created and the others of the batch are answered too',
  async t => {
    const { accept, post, quiet } = await setup(t)
    const first = await post()
    await quiet()
    const one = taskRequest({ taskNo: 'one', ...after(first) })
    const answers = await Promise.all([
      accept(taskRequest(after(first))), // While it is written, the others form one batch.
      accept(one),
      accept(one),
      accept({ ...one, contentHash: 'another' }),
      accept(taskRequest({ taskNo: 'two', ...after('one') }))
    ])
    t.same(
      answers.map(answer => answer.kind),
      ['created', 'created', 'same', 'conflict', 'created']
    )
  }
)
