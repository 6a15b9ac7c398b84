import { once } from 'node:events'
import { freePort } from '../../src/embedded/port.ts'
import t from 'tap'
import type * as service from '../../src/domain/types.ts'
import {
  AckboxError,
  client,
  ProducerError,
  type DeliveryAnswer,
  type TaskStatus
} from '../../src/producer/producer.ts'
import { only } from '../support/only.ts'
import { start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { answer, fakeAckbox } from './fake-ackbox.ts'

t.setTimeout(600_000)

const task = { messageCode: 'test.plain', messageBody: { n: 1 } }

type Same<A, B> = [A, B] extends [B, A] ? true : false

t.test('the types of an answer have each status of the service, and no other', async t => {
  // The compiler is the test.
  const ofTasks: Same<TaskStatus, service.TaskStatus> = true
  const ofDeliveries: Same<DeliveryAnswer['status'], service.Status> = true
  t.ok(ofTasks && ofDeliveries)
})

/** The client repeats what a busy machine answers 503: the first try may have been stored. */
const statusOf = ({ status }: { status: number }): number => (status === 200 ? 201 : status)

t.test('against a real service', async t => {
  const at = await stage(t)
  if (!at) return
  const { url } = await start(t, at.env)
  const ackbox = client({ url })

  await t.test('a task is posted, waited for and read', async t => {
    const posted = await ackbox.post({ ...task, taskNo: 'plain-1' })
    t.match(posted, { taskNo: 'plain-1', status: 'SENDING' })
    t.match(await ackbox.waitFor('plain-1'), { status: 'HANDLED' })
    t.match(await ackbox.read('plain-1'), { messageBody: { n: 1 }, deliveries: [{ status: 'HANDLED' }] })
    t.match(await ackbox.redeliver('plain-1', { force: true }), { taskNo: 'plain-1' })
    t.match(await ackbox.waitFor('plain-1'), { status: 'HANDLED' })
  })

  await t.test('without a number it gets one', async t => {
    const { taskNo } = await ackbox.post(task)
    t.match(taskNo, /^[0-9a-f-]{36}$/)
    t.match(await ackbox.read(taskNo), { taskNo })
  })

  await t.test('a batch of any size has a result for each, in order', async t => {
    const tasks = Array.from({ length: 1_201 }, (_, i) => ({
      ...task,
      taskNo: `many-${i}`,
      delay: 86_400_000
    }))
    tasks[3] = { ...tasks[3], taskNo: 'plain-1', delay: 5 } as (typeof tasks)[0]
    const results = await ackbox.batch(tasks)
    t.same(
      results.map(one => one.taskNo),
      tasks.map(one => one.taskNo)
    )
    t.same(new Set(results.map(statusOf)), new Set([201, 409]))
    t.match(results[3], { status: 409, code: 'TASK_CONFLICT' })
  })

  await t.test('a body that Ackbox does not read is refused in its place, and the others arrive', async t => {
    const tasks = Array.from({ length: 7 }, (_, i) => ({
      messageCode: 'test.plain',
      messageBodyText: i === 3 ? `${'['.repeat(70)}${']'.repeat(70)}` : '{"n": 1}',
      taskNo: `deep-${i}`
    }))
    const results = await ackbox.batch(tasks)
    t.same(
      results.map(one => [one.taskNo, statusOf(one)]),
      tasks.map(({ taskNo }, i) => [taskNo, i === 3 ? 400 : 201])
    )
    t.match(results[3], { code: 'TOO_DEEP', detail: /levels deep/, pointer: /^\/tasks\/3\/messageBody/ })
  })

  await t.test('what is no task yet is waited for, and what never becomes one is not found', async t => {
    const waiting = ackbox.waitFor('soon-1')
    await t.rejects(ackbox.waitFor('never-1', { timeoutMs: 300 }), { code: 'TASK_NOT_FOUND' })
    await ackbox.post({ ...task, taskNo: 'soon-1' })
    t.match(await waiting, { taskNo: 'soon-1', status: 'HANDLED' })
  })

  await t.test('what waits in vain is given as it is', async t => {
    t.match(await ackbox.waitFor('many-7', { timeoutMs: 10 }), { status: 'SENDING' })
  })

  await t.test('a refusal says what is wrong, by its stable code', async t => {
    await t.rejects(ackbox.post({ ...task, messageBody: { n: 'one' }, taskNo: 'wrong' }), {
      name: 'AckboxError',
      status: 422,
      code: 'INVALID',
      pointer: '/messageBody/n',
      message: /^POST tasks was refused: 422 INVALID: .*\/messageBody\/n/
    })
    await t.rejects(ackbox.post({ ...task, retryTimes: 0, needCallback: 'yes' as unknown as boolean }), {
      errors: [{ pointer: /^\// }, { pointer: /^\// }]
    })
    await t.rejects(ackbox.read('nobody'), { status: 404, code: 'TASK_NOT_FOUND' })
    await t.rejects(ackbox.post({ ...task, messageCode: 'test.unknown' }), { code: 'UNKNOWN_CODE' })
  })

  await t.test('a nudge never fails', t => t.resolves(ackbox.nudge()))
})

t.test('a retry is the same task, though the caller gave it no number', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response, nth) => nth < 4 && answer(response, 503, 'away', { 'retry-after': '0' })
  await client({ url: fake.url }).post(task)
  t.equal(fake.seen.length, 4)
  t.equal(new Set(fake.seen.map(one => one.text)).size, 1)
})

t.test('an answer that never comes, and a connection that breaks, are tried again', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response, nth) => {
    if (nth === 2) response.destroy()
    return nth < 3
  }
  t.match(await client({ url: fake.url, timeoutMs: 2_000 }).post({ ...task, taskNo: 'again' }), {
    taskNo: 'again'
  })
  t.equal(fake.seen.length, 3)
})

t.test('it gives up when its time is over, and says what stood in the way', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response) =>
    answer(response, 429, { status: 429, code: 'OVERLOADED', title: 'Full' }, { 'retry-after': '3600' })
  await t.rejects(client({ url: fake.url }).post(task), { code: 'OVERLOADED', retryAfterMs: 3_600_000 })
  t.equal(fake.seen.length, 1, 'Ackbox asked to be left alone for longer than there is time')
  const nobody = client({ url: `http://127.0.0.1:${await freePort()}`, retryForMs: 0 })
  await t.rejects(nobody.read('x'), {
    code: 'UNREACHABLE',
    message: /127\.0\.0\.1:\d+ cannot be reached: ECONNREFUSED/
  })
})

t.test('what was refused for good is not tried again', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response) =>
    answer(response, 409, { status: 409, code: 'TASK_CONFLICT', title: 'Other content' })
  await t.rejects(client({ url: fake.url }).post(task), AckboxError)
  fake.script = (_, response) => answer(response, 502, '<html>bad gateway</html>')
  await t.rejects(client({ url: fake.url }).redeliver('x', { force: true }), {
    status: 502,
    code: undefined,
    message: /not by Ackbox: <html>/
  })
  t.equal(fake.seen.length, 2, 'nor what may have been done, and would be done twice')
  fake.script = (_, response, nth) =>
    nth === 3 && answer(response, 429, { status: 429, code: 'OVERLOADED', title: 'Full' })
  await client({ url: fake.url }).redeliver('x')
  t.equal(fake.seen.length, 4, 'but what was surely not done')
})

t.test(
  'a batch that is too large for a proxy is divided, and only what is too large alone is refused',
  async t => {
    const fake = await fakeAckbox(t)
    fake.script = ({ text }, response) => {
      if (text.length > 1_000) return answer(response, 413, '<html>413 Request Entity Too Large</html>')
      const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
      return answer(response, 200, { results: tasks.map(({ taskNo }) => ({ taskNo, status: 201 })) })
    }
    const tasks = Array.from({ length: 20 }, (_, n) => ({
      ...task,
      taskNo: `large-${n}`,
      messageBody: 'x'.repeat(n === 7 ? 2_000 : 100)
    }))
    const results = await client({ url: fake.url }).batch(tasks)
    t.same(
      results.filter(one => one.status !== 201),
      [{ taskNo: 'large-7', status: 413, code: 'TOO_LARGE' }]
    )
    t.equal(results.length, 20)
  }
)

t.test('a page with status 200 that is not by Ackbox is an error, also if it is JSON', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url })
  fake.script = (_, response) => answer(response, 200, { message: 'We are down for maintenance' })
  const notByAckbox = {
    name: 'AckboxError',
    status: 200,
    code: undefined,
    message: /not by Ackbox: {"message"/
  }
  await t.rejects(ackbox.post(task), notByAckbox)
  await t.rejects(ackbox.batch([task]), notByAckbox)
  await t.rejects(ackbox.read('x'), notByAckbox)
  await t.rejects(ackbox.commit('x'), notByAckbox)
  fake.script = (_, response) => answer(response, 400, { message: 'Bad request' })
  await t.rejects(ackbox.batch([task, task]), { ...notByAckbox, status: 400 })
  fake.script = (_, response) => answer(response, 200, { results: [] })
  await t.rejects(ackbox.batch([task, task]), {
    name: 'AckboxError',
    message: 'POST tasks/batch was answered with 0 results for 2 tasks, so not by Ackbox.'
  })
})

t.test('what must come after a task that is to be posted again is not posted before it', async t => {
  const fake = await fakeAckbox(t)
  const posted: string[][] = []
  fake.script = ({ text }, response) => {
    const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
    posted.push(tasks.map(one => one.taskNo))
    const results = tasks.map(({ taskNo }) => ({ taskNo, status: taskNo === 'n-10' ? 503 : 201 }))
    return answer(response, 200, { results })
  }
  const key = { orderingKey: 'order-42' }
  const more: Record<number, object> = {
    10: key,
    1_100: key,
    1_200: { after: ['n-10'] },
    1_300: { after: ['n-1200'] },
    1_400: { orderingKey: 'order-43' }
  }
  const tasks = Array.from({ length: 1_500 }, (_, n) => ({ ...task, taskNo: `n-${n}`, ...more[n] }))
  const results = await client({ url: fake.url }).batch(tasks)
  const behind = ['n-1100', 'n-1200', 'n-1300']
  t.same(
    results.map(one => one.taskNo),
    tasks.map(one => one.taskNo)
  )
  t.same(
    results.filter(one => one.status === 503).map(one => one.taskNo),
    ['n-10', ...behind]
  )
  t.same(
    posted.map(part => part.length),
    [1_000, 497]
  )
  t.notOk(behind.some(taskNo => posted.flat().includes(taskNo)))
})

t.test('an abort ends it at once, whether it sends or waits', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url })
  for (const script of [
    () => true,
    (_: unknown, response: Parameters<typeof answer>[0]) =>
      answer(response, 503, 'away', { 'retry-after': '20' })
  ]) {
    const before = fake.seen.length
    const leave = new AbortController()
    const arrived = new EventTarget()
    fake.script = (seen, response) => {
      setImmediate(() => arrived.dispatchEvent(new Event('seen')))
      return script(seen, response)
    }
    const heard = once(arrived, 'seen')
    const posted = ackbox.post(task, { signal: leave.signal })
    const refused = t.rejects(posted, { message: 'enough' })
    await heard
    leave.abort(new Error('enough'))
    await refused
    t.equal(fake.seen.length, before + 1)
  }
})

t.test('the key goes along, to the path of the url and to nobody else', async t => {
  const fake = await fakeAckbox(t)
  await client({ url: `${fake.url}/ackbox`, key: 'secret-key' })
    .post({ ...task, traceparent: '00-1-2-01' })
    .catch(() => {})
  t.match(fake.seen[0], {
    path: '/ackbox/tasks',
    headers: { authorization: 'Bearer secret-key', traceparent: '00-1-2-01' }
  })
  fake.script = (_, response) => answer(response, 307, '', { location: '/elsewhere' })
  await t.rejects(client({ url: fake.url, key: 'secret-key', retryForMs: 0 }).read('x'), {
    name: 'AckboxError',
    status: 307
  })
  t.equal(fake.seen.length, 2, 'no redirect is followed')
})

t.test('a traceparent that no header can carry is left out', async t => {
  const fake = await fakeAckbox(t)
  for (const traceparent of ['00-1\n2-01', '00-支付-01'])
    await client({ url: fake.url, retryForMs: 0 }).post({ ...task, traceparent })
  t.match(fake.seen, [{ path: '/tasks' }, { path: '/tasks' }])
  for (const { headers } of fake.seen) t.notOk(headers['traceparent'])
})

t.test('a nudge that gets no answer does not hold up its producer', async t => {
  const fake = await fakeAckbox(t)
  fake.script = () => true
  const began = stopwatch(t)
  await client({ url: fake.url }).nudge()
  const ms = began()
  t.equal(fake.seen.length, 1)
  t.ok(ms < 8_000, `${ms} ms`)
})

t.test('a key that no header can carry is refused at once, and no message names it', async t => {
  const fake = await fakeAckbox(t)
  for (const key of ['ak_secret\nx', 'ak_secret x', 'ak_sécret', 'ak_secret\u0000']) {
    const refused = await Promise.resolve()
      .then(() => client({ url: fake.url, key, retryForMs: 0 }).read('x'))
      .catch((err: unknown) => err)
    t.match(refused, { name: 'ProducerError', message: /^key must be/ }, JSON.stringify(key))
    t.notMatch(String(refused), 'cret')
  }
  await client({ url: fake.url, key: ' ak_secret\n' }).read('x')
  t.match(fake.seen, only({ headers: { authorization: 'Bearer ak_secret' } }), 'a file ends with a newline')
  await client({ url: fake.url, key: '' }).read('x')
  t.notOk(fake.seen[1]?.headers['authorization'])
})

t.test('a body keeps its own text', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url })
  const text = '{"id": 12345678901234567890, "a": 1.0}'
  await ackbox.post({ messageCode: 'x', messageBodyText: text, extend: { a: 1 }, after: ['b'] })
  t.ok(fake.seen[0]?.text.includes(`"messageBody":${text}`))
  t.match(JSON.parse(fake.seen[0]?.text ?? ''), { messageCode: 'x', extend: { a: 1 }, after: only('b') })
})

t.test('a text is taken if Ackbox takes it: its numbers, its pairs, and what looks like a name', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url })
  const texts = [
    String.raw`{"a": 1e400, "b": [{"a": "\ud83d\udcb8"}, "\"a\": 1, \\", ":", "\\u0000"], "__proto__": {}, "": 1}`,
    '"text"',
    '1',
    ' [ ] '
  ]
  for (const messageBodyText of texts) await ackbox.post({ messageCode: 'x', messageBodyText })
  t.equal(fake.seen.length, texts.length)
})

t.test('what JSON cannot hold is an error that names the member, and no other value', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url })
  const cycle: Record<string, unknown> = {}
  cycle['self'] = cycle
  const messages = new Map<unknown, string>([
    [new Map([['a', 1]]), 'messageBody: JSON has no Map; use Object.fromEntries.'],
    [{ lines: [{ tags: new Set(['a']) }] }, 'messageBody, member tags: JSON has no Set; use an array.'],
    [{ cents: Number.NaN }, 'messageBody, member cents: NaN is not a number of JSON.'],
    [
      { cents: 1n },
      'messageBody, member cents: a BigInt is not a number of JSON; write it as text, or the whole body as messageBodyText.'
    ],
    [['ok', 'half \ud83d'], 'messageBody, member 1: a text has half a surrogate pair.'],
    [{ '\udcb8': 1 }, 'messageBody, member \udcb8: its name has half a surrogate pair.'],
    [{ note: 'a\0b' }, 'messageBody, member note: a text has NUL, which no database text can hold.'],
    [{ 'a\0b': 1 }, 'messageBody, member a\0b: its name has NUL, which no database text can hold.']
  ])
  for (const [messageBody, message] of messages)
    await t.rejects(ackbox.post({ messageCode: 'x', messageBody }), new ProducerError(message), message)
  await t.rejects(ackbox.post({ messageCode: 'x', messageBody: cycle }), {
    name: 'ProducerError',
    message: /^messageBody cannot be written as JSON: .*circular/
  })
  await t.rejects(ackbox.post({ ...task, extend: { at: Infinity } }), {
    message: 'extend, member at: Infinity is not a number of JSON.'
  })
  for (const name of ['sceneType', 'orderingKey', 'bizType', 'bizKey', 'traceparent']) {
    await t.rejects(ackbox.post({ ...task, [name]: 'a\0b' }), {
      message: `${name} has NUL, which no database text can hold.`
    })
    await t.rejects(ackbox.post({ ...task, [name]: 'a\ud83d' }), {
      message: `${name} has half a surrogate pair.`
    })
  }
  t.equal(fake.seen.length, 0)
  const fine = {
    emoji: '💸',
    at: new Date(0),
    no: undefined,
    map: Object.assign(new Map(), { toJSON: () => [1] })
  }
  await ackbox.post({ messageCode: 'x', messageBody: fine })
  t.ok(fake.seen[0]?.text.includes('"messageBody":{"emoji":"💸","at":"1970-01-01T00:00:00.000Z","map":[1]}'))
})

t.test('what could never be a task is refused before anything is asked', async t => {
  const fake = await fakeAckbox(t)
  const ackbox = client({ url: fake.url })
  const wrong: unknown[] = [
    { ...task, taskNo: 'no spaces' },
    { ...task, messageCode: '' },
    { ...task, messageCode: undefined },
    { ...task, messageCode: null },
    { ...task, messageCode: 7 },
    { ...task, messageBody: undefined },
    { ...task, messageBody: null },
    { ...task, messageBody: Number.NaN },
    { messageCode: 'x', messageBodyText: '{' },
    { messageCode: 'x', messageBodyText: '["half \ud83d"]' },
    { messageCode: 'x', messageBodyText: String.raw`["half \ud83d"]` },
    { messageCode: 'x', messageBodyText: String.raw`{"half \udcb8": 1}` },
    { messageCode: 'x', messageBodyText: String.raw`["a\u0000b"]` },
    { messageCode: 'x', messageBodyText: String.raw`{"a\u0000b": 1}` },
    { messageCode: 'x', messageBodyText: String.raw`[{"a": 1, "\u0061" : 2}]` },
    { ...task, deliverStartTime: 'soon' },
    { ...task, deliverStartTime: '2026-11-20T10:00:00' },
    { ...task, delay: 1.5 },
    { ...task, orderKey: 'order-1' },
    { ...task, prepared: true },
    { ...task, checkBack: { after: '1m' } }
  ]
  for (const one of wrong)
    await t.rejects(ackbox.post(one as typeof task), ProducerError, JSON.stringify(one))
  await t.rejects(ackbox.prepare({ ...task, checkBack: { after: '1m' } } as typeof task), {
    message: /checkBack is not a member of a task.*checkAfter/
  })
  await t.rejects(ackbox.read('../keys'), ProducerError)
  for (const url of ['', 'ackbox', 'ftp://ackbox', 'http://user:pass@ackbox'])
    t.throws(() => client({ url }), ProducerError)
  t.equal(fake.seen.length, 0)
})
