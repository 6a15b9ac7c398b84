import t from 'tap'
import { contentHash } from '../../src/json/reader.ts'
import { api, inject, order } from './fake.ts'
import { only } from '../support/only.ts'

t.test('prepared and checkBack are read, and what is wrong with them is said at its place', async t => {
  const { post, asked } = await api(t)
  const times: [after: string | undefined, ms: number][] = [
    [undefined, 35_000],
    ['1s', 1_000],
    ['1.5s', 1_500],
    ['35000ms', 35_000],
    ['2h', 7_200_000],
    ['24h', 86_400_000],
    ['1d', 86_400_000]
  ]
  for (const [after, checkAfterMs] of times) {
    const checkBack = after === undefined ? undefined : { after }
    const { statusCode } = await post({ ...order, taskNo: `after-${after}`, prepared: true, checkBack })
    t.equal(statusCode, 201, String(after))
    t.same(asked.at(-1)?.prepared, { checkAfterMs })
  }
  t.equal((await post({ ...order, taskNo: 'empty', prepared: true, checkBack: {} })).statusCode, 201)
  t.equal((await post({ ...order, taskNo: 'plain', prepared: false })).statusCode, 201)
  t.equal(asked.at(-1)?.prepared, undefined)
  const wrong: [members: object, pointer: string][] = [
    [{ prepared: 'true' }, '/prepared'],
    [{ prepared: 1 }, '/prepared'],
    [{ prepared: null }, '/prepared'],
    [{ checkBack: { after: '35s' } }, '/checkBack'],
    [{ prepared: false, checkBack: {} }, '/checkBack'],
    [{ prepared: true, checkBack: null }, '/checkBack'],
    [{ prepared: true, checkBack: '35s' }, '/checkBack'],
    [{ prepared: true, checkBack: ['35s'] }, '/checkBack'],
    [{ prepared: true, checkBack: { before: '35s' } }, '/checkBack/before'],
    [{ prepared: true, checkBack: { after: 35 } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: '' } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: '35' } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: '999ms' } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: '25h' } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: '-1s' } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: '1e3s' } }, '/checkBack/after'],
    [{ prepared: true, checkBack: { after: null } }, '/checkBack/after']
  ]
  const before = asked.length
  for (const [members, pointer] of wrong) {
    const answer = (await post({ ...order, ...members })).json<{ pointer: string }>()
    t.match(answer, { status: 422, code: 'INVALID', pointer }, JSON.stringify(members))
  }
  t.equal(asked.length, before)
  const both = await post({ ...order, prepared: 1, checkBack: { after: 1 } })
  t.match(
    both.json(),
    { errors: only({ pointer: '/prepared' }, { pointer: '/checkBack/after' }) },
    'all at once'
  )
})

t.test(
  'the content of a task without these members is what it was before; with them it is another',
  async t => {
    const { post, asked } = await api(t)
    await post({ ...order, taskNo: 'one' })
    const text = JSON.stringify(order.messageBody)
    t.equal(asked[0]?.contentHash, contentHash({ messageCode: order.messageCode }, text))
    t.equal(asked[0]?.contentHash, '7mWxTyvMaFtP3R3yBXkM8OKdLRP2I5HqUlp2wgaDpw4')
    const hashes = [{}, { prepared: true }, { prepared: true, checkBack: { after: '1m' } }]
    for (const more of hashes) await post({ ...order, taskNo: `h-${JSON.stringify(more).length}`, ...more })
    t.equal(new Set(asked.slice(1).map(one => one.contentHash)).size, 3)
    t.match((await post({ ...order, taskNo: 'one', prepared: true })).json(), { code: 'TASK_CONFLICT' })
  }
)

t.test('a handler that says nowhere where to ask takes none, and the answer points there', async t => {
  const refusal = {
    kind: 'no_check_back',
    detail: 'its handler has no checkBack',
    pointer: '/prepared',
    errors: []
  } as const
  const { app, post } = await api(t, {
    accept: async () => refusal,
    acceptMany: async many => many.map(() => refusal)
  })
  const refused = { status: 422, code: 'NO_CHECK_BACK', pointer: '/prepared' }
  t.match((await post({ ...order, prepared: true })).json(), refused)
  const batch = await inject(app, '/tasks/batch', { tasks: [{ ...order, prepared: true }] })
  t.match(batch.json(), { results: only({ ...refused, pointer: '/tasks/0/prepared' }) })
})

t.test('the second phase needs no body, looks at none, and says how it ended', async t => {
  const { app, post } = await api(t)
  await post({ ...order, taskNo: 'yes', prepared: true })
  await post({ ...order, taskNo: 'no', prepared: true })
  await post({ ...order, taskNo: 'plain' })
  const end = async (taskNo: string, how: string, more: object = {}) =>
    (await app.inject({ method: 'POST', url: `/tasks/${taskNo}/${how}`, ...more })).json<object>()
  t.match(await end('yes', 'check'), { status: 'PREPARED' })
  t.match(await end('yes', 'commit'), { status: 'SENDING' })
  const body = { payload: '{not json', headers: { 'content-type': 'application/json' } }
  t.match(await end('no', 'rollback', body), { status: 'CANCELLED' })
  t.match(await end('yes', 'rollback'), { status: 409, code: 'TASK_COMMITTED' })
  t.match(await end('no', 'commit'), { status: 409, code: 'TASK_ROLLED_BACK' })
  for (const how of ['commit', 'rollback', 'check']) {
    t.match(await end('plain', how), { status: 409, code: 'NOT_PREPARED' }, how)
    t.match(await end('none', how), { status: 404, code: 'TASK_NOT_FOUND' }, how)
    t.match(await end('%00', how), { status: 404, code: 'TASK_NOT_FOUND' }, how)
  }
})

t.test(
  'a process without the handler says 503, when to come back, and why, and closes the connection',
  async t => {
    const { app } = await api(t, { commit: async () => 'no_handler' })
    const answer = await app.inject({ method: 'POST', url: '/tasks/one/commit' })
    t.match(answer.json(), { status: 503, code: 'UNAVAILABLE', detail: /no handler/ })
    t.equal(answer.headers['retry-after'], '1')
    t.equal(answer.headers['connection'], 'close', 'the next call may reach another process')
  }
)

t.test('a commit is not taken while more is written than there is room for, and comes again', async t => {
  const { app } = await api(t, { isFull: () => true })
  const answer = await app.inject({ method: 'POST', url: '/tasks/one/commit' })
  t.match(answer.json(), { status: 429, code: 'OVERLOADED' })
})
