import { once } from 'node:events'
import { connect } from 'node:net'
import t, { type Test } from 'tap'
import { loopWatch } from '../../src/api/overload.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { setup } from '../support/setup.ts'
import { until } from '../support/until.ts'
import { inject, listening } from './fake.ts'
import { parse, read, request, talk } from './socket.ts'

const pad = 'x'.repeat(240_000)
const large = (taskNo: string) => ({ taskNo, messageCode: 'order.paid', messageBody: { pad } })
const five = (name: string) => [1, 2, 3, 4, 5].map(n => large(`${name}:${n}`))
const overloaded = { status: 429, retry: '1', code: 'OVERLOADED' }

/** The API, with room for a little more than four such bodies, over a table that is locked until `release`. */
async function stalled(t: Test) {
  const { sql, accept, quiet } = await setup(t, { mostText: 1_000_000 })
  const { app, port } = await listening(t, {
    accept,
    acceptMany: many => accept.many(many),
    isFull: accept.isFull
  })
  const holder = await sql.reserve()
  let held = true
  const release = async () => {
    if (!held) return
    held = false
    await holder`rollback`
    holder.release()
  }
  t.teardown(release)
  await holder`begin`
  await holder`lock table task in access exclusive mode`
  const post = async (url: string, body: unknown) => {
    const answer = await inject(app, url, body)
    const { code } = answer.json<{ code?: string }>()
    return { status: answer.statusCode, retry: answer.headers['retry-after'], code }
  }
  /** The answer to request headers whose body never arrives. */
  const announce = async (url: string, length: number) => {
    const socket = connect(port, '127.0.0.1')
    t.teardown(() => socket.destroy())
    await once(socket, 'connect')
    socket.write(
      request(`POST ${url} HTTP/1.1`, [
        'host: ackbox.test',
        'content-type: application/json',
        `content-length: ${length}`
      ])
    )
    const { text } = await read(socket, so => parse(so).length > 0)
    const [answer] = parse(text)
    const { code } = JSON.parse(answer?.body ?? '{}') as { code?: string }
    return { status: answer?.status, retry: answer?.headers['retry-after'], code }
  }
  const stored = async () => {
    await quiet()
    const rows = await sql<{ taskNo: string }[]>`select task_no as "taskNo" from task order by task_no`
    return rows.map(row => row.taskNo)
  }
  return { accept, post, announce, release, stored }
}

t.test('few tasks with large bodies fill the room too: 429 for the next, whose body is not read', async t => {
  const { accept, post, announce, release, stored } = await stalled(t)
  const all = [...five('first'), ...five('second')].map(async task => {
    const answer = await post('/tasks', task)
    return { taskNo: task.taskNo, ...answer }
  })
  await until('the room is full', () => accept.isFull())
  t.match(await announce('/tasks', 200), overloaded)
  t.match(await announce('/tasks/batch', 8_000_000), overloaded)
  await release()
  const answers = await Promise.all(all)
  const taken = answers.filter(one => one.status === 201)
  t.equal(taken.length, 5, 'all ten had been let in; when it came to them there was room for five')
  t.match(
    answers.filter(one => one.status !== 201),
    only(overloaded, overloaded, overloaded, overloaded, overloaded)
  )
  t.same(
    await stored(),
    taken.map(one => one.taskNo)
  )
  t.equal((await post('/tasks', large('later'))).status, 201, 'and then there is room again')
})

t.test('of two batches read side by side, which together are too much, one is told to come back', async t => {
  const { accept, post, announce, release, stored } = await stalled(t)
  const first = five('first')
  const batches = [first, five('second')].map(tasks => post('/tasks/batch', { tasks }))
  await until('the room is full', () => accept.isFull())
  t.match(await announce('/tasks/batch', 8_000_000), overloaded)
  await release()
  const answers = await Promise.all(batches)
  t.match(answers, only({ status: 200 }, overloaded))
  t.same(
    await stored(),
    first.map(task => task.taskNo),
    'none of it is stored'
  )
  t.equal((await post('/tasks/batch', { tasks: five('second') })).status, 200, 'and then it is taken')
})

t.test('64 MiB of bodies may wait, and what cannot be written gives its room back', async t => {
  const { accept, around } = await setup(t)
  around.setDatabaseAway()
  const messageBody = JSON.stringify('x'.repeat(262_142))
  const post = () => accept(taskRequest({ messageBody }))
  const waiting = Array.from({ length: 256 }, post)
  t.equal(accept.isFull(), false)
  waiting.push(post())
  t.equal(accept.isFull(), true)
  const answers = await Promise.allSettled(waiting)
  t.same(new Set(answers.map(answer => answer.status)), new Set(['rejected']))
  t.equal(accept.isFull(), false)
})

t.test('bodies that are still being read have room together, and one key at most half of it', async t => {
  const { app, port, addKey } = await listening(t, { auth: true })
  const [one, other] = ['a', 'b'].map(letter => `ack_${letter.repeat(32)}`) as [string, string]
  addKey(one, { name: 'one', scopes: ['tasks:write'] })
  addKey(other, { name: 'other', scopes: ['tasks:write'] })
  let posted = 0
  const post = async (key: string): Promise<number> =>
    (await inject(app, '/tasks', large(`x${posted++}`), { authorization: `Bearer ${key}` })).statusCode
  t.equal(await post(one), 201)

  // Twelve batches of 8 MiB, of which nobody sends a byte.
  const refused: string[] = []
  const sockets = Array.from({ length: 12 }, () => {
    const socket = connect(port, '127.0.0.1')
    socket.on('data', answer => refused.push(answer.toString().slice(0, 12)))
    socket.write(
      request('POST /tasks/batch HTTP/1.1', [
        'host: ackbox.test',
        'content-type: application/json',
        `authorization: Bearer ${one}`,
        'content-length: 8388608'
      ])
    )
    return socket
  })
  t.teardown(() => sockets.forEach(socket => socket.destroy()))
  await until('those without room are refused', () => refused.length >= 4)
  t.same(refused, Array(4).fill('HTTP/1.1 429'))
  t.equal(await post(one), 429)
  t.equal(await post(other), 201, 'there is room for another key')
  const [tooLong] = (
    await talk(
      port,
      request('POST /tasks/batch HTTP/1.1', [
        'host: ackbox.test',
        'content-type: application/json',
        `authorization: Bearer ${other}`,
        'content-length: 200000000'
      ])
    )
  ).all
  t.equal(tooLong?.status, 413, 'what is too long at any time is no matter of room')
  for (const socket of sockets) socket.destroy()
  await until('their room is free again', async () => (await post(one)) === 201)
})

t.test(
  'a loop is late by its delay: not in its first second, and not if it stood still for less than that',
  async t => {
    const [patient, strict] = [loopWatch(60_000), loopWatch(100)]
    t.teardown(patient.stop)
    t.teardown(strict.stop)
    const standStill = async () => {
      for (const end = performance.now() + 1_200; performance.now() < end;);
      await new Promise(resolve => setImmediate(resolve)) // the timers of both have fired
      return [patient.isLate(), strict.isLate()]
    }
    t.same(await standStill(), [false, false], 'as a start does')
    t.same(await standStill(), [false, true])
    await until('it is in time again', () => !strict.isLate())
  }
)
