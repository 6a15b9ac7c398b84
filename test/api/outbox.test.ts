import t from 'tap'
import { scopes } from '../../src/db/api-keys.ts'
import { api } from './fake.ts'
import { only } from '../support/only.ts'

const id = '0199a1b2-c3d4-7e5f-8a6b-0123456789ab'
const rejected = '/outbox/rejected'

t.test('what was rejected is listed with its problem, retried once, and dropped once', async t => {
  const { app, audits } = await api(t)
  t.match((await app.inject(rejected)).json(), {
    rejected: only({ id, taskNo: 'order-A-1', problem: { status: 422, code: 'UNKNOWN_CODE' } })
  })
  const retry = () => app.inject({ method: 'POST', url: `${rejected}/${id}/retry` })
  t.match(await retry(), { statusCode: 202, body: JSON.stringify({ id }) })
  t.match((await retry()).json(), { status: 404, code: 'REJECTED_NOT_FOUND' })
  t.match((await app.inject({ method: 'DELETE', url: `${rejected}/${id}` })).json(), { status: 404 })
  t.same(audits, [{ who: 'local', what: 'outbox.retry', target: id }])
  const other = await api(t)
  t.match(await other.app.inject({ method: 'DELETE', url: `${rejected}/${id}` }), { statusCode: 200 })
  t.same(other.audits, [{ who: 'local', what: 'outbox.delete', target: id }])
})

t.test('a key of some messageCodes sees and touches those alone', async t => {
  const { app, addKey, rejected: rows } = await api(t, { auth: true })
  const authorization = `Bearer ack_${'a'.repeat(30)}`
  addKey(`ack_${'a'.repeat(30)}`, { scopes, messageCodes: ['stock.moved'] })
  const headers = { authorization }
  t.same((await app.inject({ url: rejected, headers })).json(), { rejected: [] })
  t.match((await app.inject({ url: `${rejected}?messageCode=order.paid`, headers })).json(), {
    code: 'CODE_FORBIDDEN'
  })
  t.match(await app.inject({ method: 'POST', url: `${rejected}/${id}/retry`, headers }), { statusCode: 404 })
  t.match(await app.inject({ method: 'DELETE', url: `${rejected}/${id}`, headers }), { statusCode: 404 })
  t.equal(rows.length, 1)
})

t.test('what is no id names nothing, and what is no cursor is no page', async t => {
  const { app } = await api(t)
  for (const wrong of ['none', id.toUpperCase(), `${id}0`, '%00']) {
    for (const [method, url] of [
      ['POST', `${rejected}/${wrong}/retry`],
      ['DELETE', `${rejected}/${wrong}`]
    ] as const)
      t.match((await app.inject({ method, url })).json(), { code: 'REJECTED_NOT_FOUND' }, `${method} ${url}`)
  }
  t.match((await app.inject(`${rejected}?cursor=none`)).json(), { code: 'INVALID', pointer: '?/cursor' })
  t.match((await app.inject(`${rejected}?limit=0`)).json(), { code: 'INVALID', pointer: '?/limit' })
  t.match((await app.inject(`${rejected}?status=FAILED`)).json(), { code: 'INVALID' })
})

t.test('a nudge is passed on, but not that of a page of another origin', async t => {
  const { app, nudges } = await api(t)
  t.match(await app.inject({ method: 'POST', url: '/outbox/nudge' }), {
    statusCode: 202,
    body: '{"nudged":true}'
  })
  const headers = { origin: 'http://elsewhere.test' }
  for (const url of ['/outbox/nudge', `${rejected}/${id}/retry`])
    t.match((await app.inject({ method: 'POST', url, headers })).json(), { code: 'CROSS_ORIGIN' }, url)
  t.equal(nudges.count, 1)
})
