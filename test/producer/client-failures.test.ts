// A client whose requests end badly: what it asks again, and what its errors tell.
import t from 'tap'
import { AckboxError, client } from '../../src/producer/producer.ts'
import { answer, fakeAckbox } from './fake-ackbox.ts'

const task = { messageCode: 'test.plain', messageBody: { n: 1 } }

t.test('an error tells the number that a task got, so that a repeat is the same task', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url, retryForMs: 0 })
  for (const post of ['post', 'prepare'] as const) {
    fake.script = (_, response) => answer(response, 503, 'busy')
    const err = await ackbox[post](task).catch((err: unknown) => err)
    t.type(err, AckboxError)
    const { taskNo } = err as AckboxError
    t.equal((JSON.parse(fake.seen.at(-1)?.text ?? '') as { taskNo: string }).taskNo, taskNo)
    fake.script = () => false
    t.match(await ackbox[post]({ ...task, taskNo }), { taskNo })
  }
})

t.test('a batch that broke off is repeated without a second task for any of its tasks', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url, retryForMs: 0 })
  const stored = new Map<string, number>()
  fake.script = ({ text }, response, nth) => {
    if (nth === 2) return answer(response, 503, 'busy')
    const { tasks } = JSON.parse(text) as { tasks: { taskNo: string; messageBody: number }[] }
    const results = tasks.map(({ taskNo, messageBody }) => {
      const status = stored.has(taskNo) ? 200 : 201
      stored.set(taskNo, messageBody)
      return { taskNo, status }
    })
    return answer(response, 200, { results })
  }
  const tasks = Array.from({ length: 1_500 }, (_, n) => ({ messageCode: 'order.paid', messageBody: n }))
  const err = (await ackbox.batch(tasks).catch((err: unknown) => err)) as AckboxError
  t.match(err, { name: 'AckboxError', status: 503 })
  t.equal(err.results.length, 1_000, 'it tells which tasks were answered')
  t.match(err.results[7], { taskNo: err.taskNos[7], status: 201 })
  const again = await ackbox.batch(tasks.map((task, n) => ({ ...task, taskNo: err.taskNos[n] })))
  t.same(new Set(again.slice(0, 1_000).map(one => one.status)), new Set([200]))
  t.equal(stored.size, 1_500)
  t.equal(new Set(stored.values()).size, 1_500)
})

t.test('waiting goes on after requests that ended badly, until its own time is over', async t => {
  const fake = await fakeAckbox(t)
  // The time for retries is over: each request of a wait may take longer than it.
  const ackbox = client({ url: fake.url, retryForMs: 0 })
  fake.script = (_, response, nth) => {
    if (nth === 1) return answer(response, 504, '<html>gateway timeout</html>')
    if (nth === 2) response.destroy()
    return nth === 2 || answer(response, 200, { taskNo: 'x', status: nth === 3 ? 'SENDING' : 'HANDLED' })
  }
  t.match(await ackbox.waitFor('x', { timeoutMs: 600_000 }), { status: 'HANDLED' })
  t.equal(fake.seen.length, 4)
  for (const { path } of fake.seen)
    t.ok(Number(/timeout=(\d+)$/.exec(path)?.[1]) < 30, `${path}: no proxy ends it as idle`)

  const asked = fake.seen.length
  fake.script = (_, response) => answer(response, 200, { taskNo: 'x', status: 'SENDING' })
  t.match(await ackbox.waitFor('x', { timeoutMs: 600 }), { status: 'SENDING' })
  t.ok(
    fake.seen.length - asked <= 3,
    'a process that stops answers at once, and is not asked without a pause'
  )

  fake.script = (_, response) => answer(response, 503, 'busy')
  await t.rejects(ackbox.waitFor('x', { timeoutMs: 300 }), { name: 'AckboxError', status: 503 })
  const before = fake.seen.length
  fake.script = (_, response) => answer(response, 403, { status: 403, code: 'FORBIDDEN', title: 'No' })
  await t.rejects(ackbox.waitFor('x'), { code: 'FORBIDDEN' })
  t.equal(fake.seen.length, before + 1, 'a refusal is told at once')
})
