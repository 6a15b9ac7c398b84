import t from 'tap'
import { differencesAnswer } from '../../src/api/responses.ts'
import type { Question } from '../../src/db/reconcile.ts'
import { api, inject } from './fake.ts'
import { only } from '../support/only.ts'
import { until } from '../support/until.ts'

const asked = { downstream: 'warehouse', from: '2026-11-20T00:00:00Z', to: '2026-11-21T00:00:00Z' }
const zero = { count: 0, hash: '0'.repeat(16) }

t.test('POST /reconcile', async t => {
  const { app, deps, addKey } = await api(t, { auth: true })
  const questions: Question[] = []
  const compare = deps.reconcile
  deps.reconcile = question => {
    questions.push(question)
    return question.limit === 999 ? Promise.resolve('too_many') : compare(question)
  }
  const secret = `ack_${'r'.repeat(30)}`
  addKey(secret, { scopes: ['tasks:read'], messageCodes: ['order.paid'] })
  const headers = { authorization: `Bearer ${secret}` }
  const post = (body: object) => inject(app, '/reconcile', body, headers)

  const good = await post({ ...asked, taskNos: ['order-1'], limit: 7, bucket: 'a3' })
  t.equal(good.statusCode, 200)
  t.ok(differencesAnswer.safeParse(good.json()).success)
  t.match(
    questions,
    only({
      downstream: 'warehouse',
      messageCodes: only('order.paid'),
      from: new Date('2026-11-20T00:00:00Z'),
      to: new Date('2026-11-21T00:00:00Z'),
      taskNos: only('order-1'),
      bucket: 'a3',
      limit: 7
    })
  )
  const many = Array.from({ length: 10_000 }, (_, i) => `${'n'.repeat(120)}-${i}`)
  t.equal((await post({ ...asked, taskNos: many })).statusCode, 200, '10,000 long ones fit')
  t.equal((await post({ ...asked, digest: { '': zero } })).statusCode, 200)

  const wrong: [string, object, number, string][] = [
    ['neither', asked, 422, 'INVALID'],
    ['both', { ...asked, taskNos: [], digest: { '': zero } }, 422, 'INVALID'],
    ['no window', { downstream: 'warehouse', taskNos: [] }, 422, 'INVALID'],
    ['upside down', { ...asked, from: asked.to, to: asked.from, taskNos: [] }, 422, 'INVALID'],
    ['32 days', { ...asked, to: '2026-12-22T00:00:01Z', taskNos: [] }, 422, 'INVALID'],
    ['one too many', { ...asked, taskNos: [...many, 'x'] }, 422, 'INVALID'],
    ['no taskNo', { ...asked, taskNos: ['a b'] }, 422, 'INVALID'],
    ['a number', { ...asked, taskNos: [7] }, 422, 'INVALID'],
    ['buckets of two lengths', { ...asked, digest: { a: zero, ab: zero } }, 422, 'INVALID'],
    ['no bucket', { ...asked, digest: {} }, 422, 'INVALID'],
    ['not hexadecimal', { ...asked, digest: { x: zero } }, 422, 'INVALID'],
    ['five digits', { ...asked, digest: { abcde: zero } }, 422, 'INVALID'],
    ['a short hash', { ...asked, digest: { a: { count: 0, hash: '0' } } }, 422, 'INVALID'],
    ['a digest of a bucket', { ...asked, bucket: 'a', digest: { a: zero } }, 422, 'INVALID'],
    ['a cursor of nobody', { ...asked, taskNos: [], cursor: 'm:7' }, 422, 'INVALID'],
    ['a limit beyond', { ...asked, taskNos: [], limit: 1_001 }, 422, 'INVALID'],
    ['another code', { ...asked, taskNos: [], messageCode: 'stock.moved' }, 403, 'CODE_FORBIDDEN'],
    ['another downstream', { ...asked, taskNos: [], downstream: 'nobody' }, 404, 'DOWNSTREAM_NOT_FOUND'],
    ['too many of ours', { ...asked, digest: { '': zero }, limit: 999 }, 422, 'INVALID']
  ]
  for (const [what, body, status, code] of wrong) {
    const answer = await post(body)
    t.match([answer.statusCode, answer.json()], [status, { code }], what)
  }
  const because = async (body: object) => (await post({ ...asked, ...body })).json<object>()
  t.match(await because({ taskNos: [], cursor: 'm:7' }), { pointer: '/cursor' })
  t.match(await because({ digest: {} }), { detail: 'must have one bucket or more', pointer: '/digest' })
  const large = await inject(app, '/reconcile', { ...asked, taskNos: ['x'.repeat(1_600_000)] }, headers)
  t.equal(large.statusCode, 413)
})

t.test('comparisons of one key leave connections for all others', async t => {
  const { app, deps, addKey } = await api(t, { auth: true })
  const ends: (() => void)[] = []
  deps.reconcile = () => new Promise(resolve => ends.push(() => resolve({ differences: [] })))
  const keys = ['a', 'b', 'c'].map(name => ({ name, secret: `ack_${name.repeat(30)}` }))
  for (const { name, secret } of keys) addKey(secret, { name, scopes: ['tasks:read'] })
  const [first = '', second = '', third = ''] = keys.map(({ secret }) => secret)
  const post = (secret: string) =>
    inject(app, '/reconcile', { ...asked, taskNos: [] }, { authorization: `Bearer ${secret}` })
  const refused = { statusCode: 429, headers: { 'retry-after': '1' } }

  const running = [post(first), post(first)]
  await until('both run', () => ends.length === 2)
  t.match(await post(first), refused)
  running.push(post(second))
  await until('another has room', () => ends.length === 3)
  t.match(await post(third), refused, 'for a moment')
  for (const end of ends) end()
  for (const answer of await Promise.all(running)) t.equal(answer.statusCode, 200)
  const next = post(first)
  await until('there is room again', () => ends.length === 4)
  ends[3]?.()
  t.equal((await next).statusCode, 200)
})

t.test('a comparison that takes PostgreSQL too long is told so, and no outage', async t => {
  const { app, deps } = await api(t)
  const post = (headers = {}) => inject(app, '/reconcile', { ...asked, digest: { '': zero } }, headers)
  const fails = (code: string) => {
    deps.reconcile = () =>
      Promise.reject(new Error('Failed query', { cause: Object.assign(new Error('canceled'), { code }) }))
  }
  fails('57014')
  t.match((await post()).json(), {
    status: 422,
    code: 'INVALID',
    pointer: '/from',
    detail: 'the comparison takes too long: choose a shorter time'
  })
  t.match((await post({ 'accept-language': 'zh' })).json(), { detail: '对账耗时过长：请缩短时间窗' })
  fails('57P01')
  for (let n = 0; n < 3; n++)
    t.match((await post()).json(), { status: 503, detail: 'the database cannot be reached' }, 'room is left')
})
