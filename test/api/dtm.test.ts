// The wire protocol of DTM, request by request: accepted requests, named refusals, and FAILURE in answers with 409 only.
import t, { type Test } from 'tap'
import { dtmTaskNo, readTargets } from '../../src/handler/dtm.ts'
import { api, inject, order } from './fake.ts'
import { only } from '../support/only.ts'

const dtmTargets = new Map([
  ['shop', 'http://shop.test:8080'],
  ['stock', 'https://stock.test']
])
const action = 'http://shop.test:8080/in?x=1'
const message = {
  gid: 'g1',
  trans_type: 'msg',
  steps: [{ action }, { action: 'https://stock.test/out' }],
  payloads: ['{"cents":1}', ''],
  query_prepared: 'http://shop.test:8080/query'
}

async function wire(t: Test, change = {}) {
  const { app, ...fake } = await api(t, { dtmTargets, ...change })
  const say = async (operation: string, body: object = message, headers = {}) => {
    const answer = await inject(app, `/api/dtmsvr/${operation}`, body, headers)
    const { statusCode: status, body: text } = answer
    t.equal(/FAILURE/.test(text), status === 409, `${operation} ${status} ${text}`)
    return { status, body: JSON.parse(text) as Record<string, unknown> }
  }
  return { app, say, ...fake }
}

t.test('off, nothing is there; on, a gid is new each time', async t => {
  const { app } = await api(t)
  t.equal((await app.inject('/api/dtmsvr/newGid')).statusCode, 404)
  t.equal((await inject(app, '/api/dtmsvr/submit', message)).statusCode, 404)
  const on = await wire(t)
  const gids = new Set<unknown>()
  for (let n = 0; n < 3; n++) {
    const { statusCode, body } = await on.app.inject('/api/dtmsvr/newGid')
    const { gid, dtm_result: result } = JSON.parse(body) as Record<string, unknown>
    t.match([statusCode, result], [200, 'SUCCESS'])
    gids.add(gid)
  }
  t.equal(gids.size, 3)
  t.notMatch((await on.app.inject('/openapi.json')).body, /dtmsvr/, 'it is described in docs/dtm.md alone')
})

t.test('prepare, submit and abort, each again, and each too late', async t => {
  const { say, asked } = await wire(t)
  const done = { status: 200, body: { dtm_result: 'SUCCESS' } }
  const failure = { status: 409, body: { dtm_result: 'FAILURE', message: String } }
  t.match(await say('prepare'), done)
  t.match(asked[0], {
    taskNo: dtmTaskNo('g1', '01'),
    messageCode: 'dtm.shop',
    prepared: { checkAfterMs: 35_000 },
    biz: { type: 'dtm', key: 'g1', unique: false },
    body: { action, payload: '{"cents":1}', inSequence: true, others: only({ branch: '02', payload: '' }) }
  })
  t.match(await say('prepare'), done, 'again')
  t.match(await say('submit'), done)
  t.match(await say('submit'), done, 'again')
  t.match(await say('prepare'), failure)
  t.match(await say('abort'), failure)
  const other = { ...message, gid: 'g2' }
  t.match(await say('prepare', other), done)
  t.match(await say('abort', other), done)
  t.match(await say('abort', other), done, 'again')
  t.match(await say('submit', other), failure)
  t.match(await say('prepare', other), failure)
  t.match(await say('abort', { ...message, gid: 'g3' }), { status: 404 })
  const changed = await say('submit', { ...message, gid: 'g1', payloads: ['{"cents":2}', ''] })
  t.match(changed, { status: 422, body: { pointer: '/gid' } }, 'other steps under a known gid')
})

t.test('what Ackbox does not do is refused by its name', async t => {
  const { app, say, asked } = await wire(t)
  const wrong: [more: object, says: RegExp][] = [
    [{ trans_type: 'saga' }, /saga is not offered/],
    [{ trans_type: 'tcc', steps: undefined }, /tcc is not offered/],
    [{ trans_type: 'xa' }, /xa is not offered/],
    [{ trans_type: 'workflow' }, /workflow is not offered/],
    [{ bin_payloads: ['AA=='] }, /gRPC/],
    [{ passthrough_headers: ['x-a'] }, /passthrough_headers/],
    [{ protocol: 'grpc' }, /only http/],
    [{ steps: [{ action: 'topic://orders' }], payloads: [''] }, /topics are not offered/],
    [{ steps: [] }, /one step or more/],
    [{ steps: [{ action: 'http://elsewhere.test/' }], payloads: [''] }, /one of DTM_TARGETS: shop, stock/],
    [{ steps: [{ action: 'http://a:b@shop.test:8080/' }], payloads: [''] }, /one of DTM_TARGETS/],
    [{ steps: [{ action: 'FAILURE' }], payloads: [''] }, /one of DTM_TARGETS/],
    [{ query_prepared: 'http://elsewhere.test/FAILURE' }, /one of DTM_TARGETS/],
    [{ payloads: ['', '', ''] }, /more payloads/],
    [{ custom_data: '{"delay":"soon"}' }, /custom_data\/delay|expected/],
    [{ custom_data: 'ONGOING' }, /JSON object/],
    [{ branch_headers: { 'webhook-id': '1' } }, /must not set the header webhook-id/],
    [{ branch_headers: { 'x-a': 'a\nb' } }, /has a character that headers must not have/],
    [{ gid: '' }, /1 to 128/],
    [{ gid: undefined }, /expected/i],
    [{ timeout_to_fail: -1 }, /expected/i]
  ]
  for (const [more, says] of wrong) {
    const { status, body } = await say('submit', { ...message, ...more })
    t.equal(status, 422, JSON.stringify(more))
    t.match(body['message'], says)
  }
  t.match(await say('prepare', { ...message, query_prepared: null }), { status: 422 })
  t.match(await say('submit', { ...message, payloads: ['x'.repeat(270_000)] }), { status: 413 })
  for (const operation of ['registerBranch', 'prepareWorkflow', 'registerXaBranch', 'forceStop'])
    t.match(await say(operation), { status: 422, body: { message: /not offered/ } }, operation)
  t.match(await app.inject('/api/dtmsvr/query?gid=g1'), { statusCode: 422, body: /bizType=dtm/ })
  t.match(await say('nothing'), { status: 404 })
  t.match(await say('constructor'), { status: 404 })
  t.same(asked, [], 'nothing of all that was taken')
  const nulls = Object.fromEntries(
    [
      'custom_data',
      'wait_result',
      'concurrent',
      'timeout_to_fail',
      'branch_headers',
      'protocol',
      'anything'
    ].map(name => [name, null])
  )
  t.equal(
    (await say('submit', { ...message, ...nulls })).status,
    200,
    'null, and what nobody knows, is let pass'
  )
})

t.test('times: the first question, the interval, the delay', async t => {
  const { say, asked } = await wire(t)
  const times = { timeout_to_fail: 7, retry_interval: 3, custom_data: '{"delay":60,"other":1}' }
  t.equal((await say('prepare', { ...message, ...times })).status, 200)
  t.match(asked[0], {
    prepared: { checkAfterMs: 7_000 },
    body: { askEveryMs: 3_000 },
    delayMs: 60_000
  })
  const bare = await say('submit')
  t.equal(bare.status, 200, 'times are no part of what a message is')
  t.equal(asked[0]?.contentHash, asked[1]?.contentHash)
})

t.test('with wait_result the answer tells whether all is done', async t => {
  const { say, stored } = await wire(t)
  const patient = { ...message, wait_result: true, request_timeout: 0.05 }
  t.match(await say('submit', patient), { status: 425, body: { dtm_result: 'ONGOING' } })
  const [first] = stored.values()
  if (first) first.task.status = 'HANDLED'
  t.match(await say('submit', patient), { status: 425 }, 'the second step is not')
  const single = { ...patient, gid: 'g2', steps: [{ action }], payloads: [''] }
  t.match(await say('submit', single), { status: 425 })
  for (const { task } of stored.values()) task.status = 'HANDLED'
  t.match(await say('submit', single), { status: 200 })
})

t.test('a key stands in the address, as HTTP libraries send it, and here alone', async t => {
  const key = 'ack_0123456789abcdef0123'
  const { app, say, addKey } = await wire(t, { auth: true })
  addKey(key, { name: 'shop', scopes: ['tasks:write'], messageCodes: ['dtm.shop'] })
  const basic = (secret: string) => ({
    authorization: `Basic ${Buffer.from(`dtm:${secret}`).toString('base64')}`
  })
  t.match(await say('submit'), { status: 401, body: { message: String } })
  t.match(await say('submit', message, basic('ack_another_key_of_nobody')), { status: 401 })
  t.match(await say('submit', message, basic(key)), { status: 403, body: { code: 'CODE_FORBIDDEN' } })
  const own = { ...message, steps: [{ action }], payloads: ['1'] }
  t.match(await say('submit', own, basic(key)), { status: 200 })
  t.match(await say('submit', own, { authorization: `Bearer ${key}` }), { status: 200 })
  // The question is a request like a step: a key that may not send to a target may not have it asked.
  const asked = { ...own, gid: 'asked', query_prepared: 'https://stock.test/ask' }
  t.match(await say('prepare', asked, basic(key)), {
    status: 403,
    body: { code: 'CODE_FORBIDDEN', pointer: '/query_prepared' }
  })
  t.equal((await inject(app, '/tasks', order, basic(key))).statusCode, 401)
})

t.test('the numbers and codes of its tasks are not for others', async t => {
  const dtm = { checkAnswer: () => undefined, askEveryMs: () => 1, steps: () => null }
  const { app } = await wire(t, {
    handlers: new Map([['dtm.shop', { messageCode: 'dtm.shop', body: {}, downstreams: [], dtm }]])
  })
  const post = async (more: object) => {
    const { statusCode, body } = await inject(app, '/tasks', { ...order, ...more })
    return [statusCode, (JSON.parse(body) as Record<string, unknown>)['pointer']]
  }
  t.same(await post({ taskNo: dtmTaskNo('g1', '02') }), [422, '/taskNo'])
  t.same(await post({ messageCode: 'dtm.shop' }), [422, '/messageCode'])
  t.same(await post({ taskNo: 'dtm:mine' }), [201, undefined])
})

t.test('DTM_TARGETS is names and origins', async t => {
  t.same(
    readTargets('shop=http://shop:8080, stock=https://stock.test/'),
    new Map([
      ['shop', 'http://shop:8080'],
      ['stock', 'https://stock.test']
    ])
  )
  for (const text of [
    '',
    'shop',
    'Shop=http://shop',
    'shop=ftp://shop',
    'shop=http://shop/path',
    'shop=http://a:b@shop',
    'shop=http://shop?x=1',
    'shop=http://a,shop=http://b',
    'a=http://shop,b=http://shop'
  ])
    t.type(readTargets(text), 'string', text)
})
