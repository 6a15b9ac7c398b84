// Tasks that wait for others, over HTTP: as producers post them, and when the process that would release them dies.
// Takes long: npm run test:long.
import t from 'tap'
import { createKey, scopes } from '../../src/db/api-keys.ts'
import { freePort } from '../../src/embedded/port.ts'
import { only } from '../support/only.ts'
import { call, postUntilTaken, settled, start } from '../support/service.ts'
import { stage, tally } from '../support/stage.ts'

t.setTimeout(2_400_000)

const plain = (taskNo: string, more: object = {}) => ({
  taskNo,
  messageCode: 'test.plain',
  messageBody: { n: 1 },
  ...more
})

t.test(
  'killed between the end of a task and its look for what waits for it, it is found by the next process',
  async t => {
    const on = await stage(t, { patient: true })
    if (!on) return
    const first = await start(t, { ...on.env, FAILPOINTS: 'complete.after_commit=kill#1' })
    t.equal((await call(`${first.url}/downstreams/plain/pause`, {})).status, 200)
    const posted = await call(`${first.url}/tasks/batch`, {
      tasks: [plain('one'), plain('two', { after: ['one'] }), plain('three', { after: ['two', 'one'] })]
    })
    t.match(posted.body, { results: only({ status: 201 }, { status: 201 }, { status: 201 }) })
    // The process may die before it answers.
    await call(`${first.url}/downstreams/plain/resume`, {}).catch(() => {})
    t.equal((await first.exited).signal, 'SIGKILL')
    t.same(await tally(on.sql), { HANDLED: 1, 'SENDING BLOCKED': 2 }, 'it died at that very moment')
    const second = await start(t, on.env)
    t.match(await settled(second.url, 'three'), { body: { status: 'HANDLED', after: only('one', 'two') } })
    t.match(await call(`${second.url}/tasks/one`), { body: { before: only('two', 'three') } })
    t.same(
      on.downstream.requests.map(one => one.headers['ackbox-task-no']),
      ['one', 'two', 'three']
    )
  }
)

t.test(
  'roles in processes of their own: a chain goes link by link, each after the receipt of the one before',
  async t => {
    const on = await stage(t)
    if (!on) return
    const port = String(await freePort())
    const env = { ...on.env, PUBLIC_URL: `http://127.0.0.1:${port}` }
    const [api] = await Promise.all([
      start(t, { ...env, PORT: port, ROLE: 'api' }),
      start(t, { ...env, ROLE: 'worker' }),
      start(t, { ...env, ROLE: 'dispatcher' })
    ])
    const chain = Array.from({ length: 6 }, (_, n) => `link-${n}`)
    for (const [n, taskNo] of chain.entries()) {
      const task = plain(taskNo, { messageCode: 'test.receipt', ...(n > 0 && { after: [chain[n - 1]] }) })
      t.ok((await postUntilTaken(() => api.url, task)).status < 300)
    }
    t.match(await settled(api.url, 'link-5'), { body: { status: 'HANDLED' } })
    const firsts = [...new Set(on.downstream.requests.map(one => one.headers['ackbox-task-no']))]
    t.same(firsts, chain)
    const early = await on.sql`
    select from dependency x join delivery p on p.task_id = x.after_id
      join attempt a on a.task_id = x.task_id and a.attempt = 1
    where a.started_at < p.handled_at`
    t.equal(early.length, 0)
  }
)

t.test('a key of other message codes is answered about the task of another as about none', async t => {
  const on = await stage(t)
  if (!on) return
  const { url } = await start(t, { ...on.env, AUTH: 'on' })
  const keys = await Promise.all(
    [null, ['test.plain']].map((messageCodes, n) =>
      createKey(on.sql, { name: `key-${n}`, scopes: [...scopes], messageCodes, who: { name: 'test' } })
    )
  )
  const [admin, bound] = keys.map(({ key }) => async (method: string, path: string, body?: unknown) => {
    const answer = await fetch(url + path, {
      method,
      headers: { authorization: `Bearer ${key}`, ...(body ? { 'content-type': 'application/json' } : {}) },
      ...(body ? { body: JSON.stringify(body) } : {})
    })
    return { status: answer.status, text: await answer.text() }
  })
  if (!admin || !bound) throw new Error('two keys')
  await admin('POST', '/tasks', plain('theirs', { messageCode: 'test.receipt' }))
  await bound('POST', '/tasks', plain('mine'))
  const [hidden, missing] = [
    await bound('POST', '/tasks', plain('new', { after: ['theirs'] })),
    await bound('POST', '/tasks', plain('new', { after: ['nobody'] }))
  ]
  t.equal(hidden.status, 422)
  t.equal(hidden.text, missing.text)
  const batch = (taskNo: string) => ({ tasks: [plain('new'), plain('newer', { after: ['new', taskNo] })] })
  const [one, other] = [
    await bound('POST', '/tasks/batch', batch('theirs')),
    await bound('POST', '/tasks/batch', batch('nobody'))
  ]
  t.match(JSON.parse(one.text), {
    results: only({ status: 201 }, { status: 422, pointer: '/tasks/1/after/1' })
  })
  t.same(JSON.parse(one.text).results[1], JSON.parse(other.text).results[1])
  await admin('POST', '/tasks', plain('both', { after: ['mine', 'theirs'] }))
  t.match(JSON.parse((await admin('GET', '/tasks/both')).text), { after: only('mine', 'theirs') })
  t.notMatch((await bound('GET', '/tasks/both')).text, /theirs/)
  await admin('POST', '/tasks', plain('secret-one', { messageCode: 'test.receipt', after: ['mine'] }))
  t.match(JSON.parse((await bound('GET', '/tasks/mine')).text), { before: only('both') })
  t.notMatch((await bound('GET', '/tasks/mine?wait=HANDLED')).text, /secret-one/)
})

t.test('what is wrong with after is said with a pointer to it', async t => {
  const on = await stage(t)
  if (!on) return
  const { url } = await start(t, on.env)
  for (const [after, pointer] of [
    [[], '/after'],
    ['one', '/after'],
    [['a b'], '/after/0'],
    [[null], '/after/0'],
    [Array.from({ length: 33 }, (_, n) => `n${n}`), '/after'],
    [['nobody'], '/after/0']
  ] as const)
    t.match(await call(`${url}/tasks`, plain('new', { after })), {
      status: 422,
      body: { code: 'INVALID', pointer }
    })
  t.equal((await call(`${url}/tasks/new`)).status, 404)
})
