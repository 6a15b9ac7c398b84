import t from 'tap'
import { wantsText } from '../../src/api/callback.ts'
import { Unavailable } from '../../src/runtime/errors.ts'
import { api, inject, order } from './fake.ts'

const good = { 'ackbox-callback-token': 'good' }
const receipt = { taskNo: 'one', messageCode: 'order.paid' }

t.test('a receipt with its token is answered with what it did, again and again', async t => {
  const { app, post, receipts, stored } = await api(t)
  await post({ ...order, taskNo: 'one' })
  const first = await inject(app, '/callback', receipt, good)
  t.match(
    { status: first.statusCode, body: first.json() },
    { status: 200, body: { taskNo: 'one', status: 'HANDLED', applied: true } }
  )
  t.match((await inject(app, '/callback', receipt, good)).json(), { status: 'HANDLED', applied: false })
  const one = stored.get('one')
  if (one) one.task.status = 'FAILED'
  t.match((await inject(app, '/callback', receipt, good)).json(), { applied: true, late: true })
  t.match(receipts[0], { taskNo: 'one', result: 'HANDLED', token: 'good', remote: '127.0.0.1' })
})

t.test('what a receipt says reaches the service with the very text of its data', async t => {
  const { app, post, receipts } = await api(t)
  await post({ ...order, taskNo: 'one' })
  await inject(
    app,
    '/callback',
    '{"taskNo":"one","messageCode":"order.paid","downstream":"warehouse","result":"RETRY","reason":"later","data": {"n":1e400} }',
    good
  )
  t.same(receipts[0], {
    taskNo: 'one',
    messageCode: 'order.paid',
    downstream: 'warehouse',
    result: 'RETRY',
    reason: 'later',
    data: '{"n":1e400}',
    token: 'good',
    remote: '127.0.0.1'
  })
  await inject(app, '/callback', { ...receipt, data: null }, good)
  t.equal(receipts[1]?.data, 'null')
  // Such as a stack trace: a receipt that is refused would be lost.
  await inject(app, '/callback', { ...receipt, reason: 'x'.repeat(999) + '\u{1F600} and more' }, good)
  t.equal(receipts[2]?.reason, 'x'.repeat(999))
})

t.test('every wrong token gets one and the same 401', async t => {
  const { app, post } = await api(t)
  await post({ ...order, taskNo: 'one' })
  const answers = await Promise.all([
    inject(app, '/callback', receipt),
    inject(app, '/callback', receipt, { 'ackbox-callback-token': '' }),
    inject(app, '/callback', receipt, { 'ackbox-callback-token': 'bad' }),
    inject(app, '/callback', receipt, { 'ackbox-callback-token': 'good ' + '=' }),
    inject(app, '/callback', receipt, { 'ackbox-callback-token': 't\u00f6ken' }),
    inject(app, '/callback', { ...receipt, taskNo: 'unknown' })
  ])
  for (const answer of answers) {
    t.equal(answer.statusCode, 401)
    t.equal(answer.body, answers[0]?.body)
  }
})

t.test(
  'a receipt for what is gone, deleted, of another code or downstream, or out of form says so',
  async t => {
    const { app, post, stored } = await api(t)
    await post({ ...order, taskNo: 'one' })
    const cases: [name: string, body: unknown, status: number, code: string][] = [
      ['row gone', { ...receipt, taskNo: 'gone' }, 404, 'TASK_NOT_FOUND'],
      ['another messageCode', { ...receipt, messageCode: 'order.other' }, 422, 'WRONG_CODE'],
      ['another downstream', { ...receipt, downstream: 'points' }, 422, 'WRONG_DOWNSTREAM'],
      ['result yes', { ...receipt, result: 'yes' }, 422, 'INVALID'],
      ['result null', { ...receipt, result: null }, 422, 'INVALID'],
      ['no messageCode', { taskNo: 'one' }, 422, 'INVALID'],
      ['an unknown member', { ...receipt, more: 1 }, 422, 'INVALID'],
      ['not JSON', 'success', 400, 'NOT_JSON'],
      ['a member twice', '{"taskNo":"one","taskNo":"one","messageCode":"order.paid"}', 400, 'NOT_I_JSON'],
      [
        'deep data',
        `{"taskNo":"one","messageCode":"order.paid","data":${'['.repeat(65)}${']'.repeat(65)}}`,
        400,
        'TOO_DEEP'
      ],
      ['data of 65,537 bytes', { ...receipt, data: 'x'.repeat(65_535) }, 413, 'DATA_TOO_LARGE'],
      ['a body of 100 kB', { ...receipt, data: 'x'.repeat(100_000) }, 413, 'TOO_LARGE']
    ]
    for (const [name, body, status, code] of cases) {
      const answer = await inject(app, '/callback', body, good)
      t.match({ status: answer.statusCode, body: answer.json() }, { status, body: { code } }, name)
    }
    for (const bytes of [65_535, 65_536]) {
      t.equal(
        (await inject(app, '/callback', { ...receipt, data: 'x'.repeat(bytes - 2) }, good)).statusCode,
        200,
        `data of ${bytes}`
      )
    }
    const one = stored.get('one')
    if (one) one.task.status = 'DELETED'
    t.match((await inject(app, '/callback', receipt, good)).json(), { status: 409, code: 'TASK_DELETED' })
  }
)

t.test('a downstream that speaks the classic way is answered success or fail', async t => {
  const { app, post, deps } = await api(t)
  await post({ ...order, taskNo: 'one' })
  const plain = { accept: 'text/plain' }
  const said = async (body: unknown, headers: Record<string, string>) => {
    const answer = await inject(app, '/callback', body, { ...plain, ...headers })
    return [answer.statusCode, answer.headers['content-type'], answer.body]
  }
  t.same(await said(receipt, good), [200, 'text/plain; charset=utf-8', 'success'])
  t.same(await said(receipt, {}), [401, 'text/plain; charset=utf-8', 'fail'])
  t.same(await said('{', good), [400, 'text/plain; charset=utf-8', 'fail'])
  t.same(await said('x'.repeat(100_000), good), [413, 'text/plain; charset=utf-8', 'fail'])
  t.same(await said(receipt, { ...good, 'content-encoding': 'gzip' }), [
    415,
    'text/plain; charset=utf-8',
    'fail'
  ])
  deps.receive = async () => {
    throw new Unavailable()
  }
  t.same(await said(receipt, good), [503, 'text/plain; charset=utf-8', 'fail'])
})

t.test('text is answered only where it is wanted', t => {
  const cases: [accept: string | undefined, text: boolean][] = [
    [undefined, false],
    ['*/*', false],
    ['text/plain', true],
    ['Text/Plain', true],
    ['text/*', false],
    ['application/json', false],
    ['text/plain, application/json', true],
    ['text/plain;q=0.5, application/json', false],
    ['text/plain, */*', true],
    ['text/plain;q=0', false],
    ['application/json;q=0.5, text/plain;q=0.9', true],
    ['text/plain;q=x', false]
  ]
  for (const [accept, text] of cases) t.equal(wantsText(accept), text, String(accept))
  t.end()
})

t.test('where a receipt came from is an address, whatever a proxy passes on', async t => {
  const { app, post, receipts } = await api(t, { trustProxy: 1 })
  await post({ ...order, taskNo: 'one' })
  const from = async (forwarded: string) => {
    const headers = { 'ackbox-callback-token': 'good', 'x-forwarded-for': forwarded }
    const answer = await inject(app, '/callback', { taskNo: 'one', messageCode: 'order.paid' }, headers)
    t.equal(answer.statusCode, 200)
    return receipts.at(-1)?.remote
  }
  t.equal(await from('203.0.113.7'), '203.0.113.7')
  t.equal(
    await from('198.51.100.1, 203.0.113.7'),
    '203.0.113.7',
    'what the caller said itself is not believed'
  )
  t.equal(await from('2001:db8::7'), '2001:db8::7')
  for (const text of ['<script>', 'x'.repeat(8_000), 'unknown', '', '203.0.113.7:80'])
    t.equal(await from(text), '127.0.0.1', text.slice(0, 20))
})
