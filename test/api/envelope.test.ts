import t from 'tap'
import { api, inject, order } from './fake.ts'

const inAYear = () => new Date(Date.now() + 365 * 86_400_000).toISOString()
const ahead = (ms: number) => new Date(Date.now() + ms).toISOString()
const year = 366 * 86_400_000

t.test('what is no task is refused by its kind, and nothing is stored', async t => {
  const { post, stored } = await api(t)
  const cases: [name: string, body: unknown, status: number, code: string][] = [
    ['E1 an empty body', '', 400, 'NOT_JSON'],
    ['E2 null', 'null', 422, 'INVALID'],
    ['E3 an array', '[]', 422, 'INVALID'],
    ['E4 a string', '"x"', 422, 'INVALID'],
    ['E5 a number', '1', 422, 'INVALID'],
    ['E6 an empty object', '{}', 422, 'INVALID'],
    ['E8 taskNo null', { ...order, taskNo: null }, 422, 'INVALID'],
    ['E9 taskNo a number', { ...order, taskNo: 7 }, 422, 'INVALID'],
    ['E10 taskNo an object', { ...order, taskNo: {} }, 422, 'INVALID'],
    ['E11 taskNo an array', { ...order, taskNo: ['a'] }, 422, 'INVALID'],
    ['E12 taskNo empty', { ...order, taskNo: '' }, 422, 'INVALID'],
    ['E15 taskNo of 129', { ...order, taskNo: 'x'.repeat(129) }, 422, 'INVALID'],
    ['E16 taskNo with a space', { ...order, taskNo: 'a b' }, 422, 'INVALID'],
    ['E17 taskNo with a slash', { ...order, taskNo: 'a/b' }, 422, 'INVALID'],
    ['E18 taskNo with %00', { ...order, taskNo: 'a%00' }, 422, 'INVALID'],
    ['E19 taskNo with ../', { ...order, taskNo: '../a' }, 422, 'INVALID'],
    ['E20 taskNo with CR LF', { ...order, taskNo: 'a\r\nb' }, 422, 'INVALID'],
    ['E20 taskNo with a line feed at its end', { ...order, taskNo: 'a\n' }, 422, 'INVALID'],
    ['E25 taskNo __proto__', { ...order, taskNo: '__proto__' }, 422, 'INVALID'],
    ['E26 taskNo .', { ...order, taskNo: '.' }, 422, 'INVALID'],
    ['E27 taskNo not ASCII, composed', { ...order, taskNo: 'caf\u00e9' }, 422, 'INVALID'],
    ['E27 taskNo not ASCII, decomposed', { ...order, taskNo: 'cafe\u0301' }, 422, 'INVALID'],
    ['E29 taskNo with a homoglyph', { ...order, taskNo: '\u043erder' }, 422, 'INVALID'],
    ['taskNo with a right-to-left override', { ...order, taskNo: 'a\u202eb' }, 422, 'INVALID'],
    ['E30 messageCode unknown', { ...order, messageCode: 'nobody.knows' }, 422, 'UNKNOWN_CODE'],
    ['E32 messageCode of 300', { ...order, messageCode: 'x'.repeat(300) }, 422, 'INVALID'],
    ['E33 messageCode null', { ...order, messageCode: null }, 422, 'INVALID'],
    ['messageCode missing', { messageBody: {} }, 422, 'INVALID'],
    ['messageBody missing', { messageCode: 'order.paid' }, 422, 'INVALID'],
    ['messageBody null', { ...order, messageBody: null }, 422, 'INVALID'],
    ['sceneType null', { ...order, sceneType: null }, 422, 'INVALID'],
    ['sceneType of 256', { ...order, sceneType: '会'.repeat(256) }, 422, 'INVALID'],
    ['sceneType with a control character', { ...order, sceneType: 'vip\u0007' }, 422, 'INVALID'],
    ['sceneType with a line feed', { ...order, sceneType: 'vip\nvip' }, 422, 'INVALID'],
    ['sceneType with a C1 control', { ...order, sceneType: 'vip\u0085' }, 422, 'INVALID'],
    ['E35 deliverStartTime null', { ...order, deliverStartTime: null }, 422, 'INVALID'],
    ['E37 deliverStartTime in five years', { ...order, deliverStartTime: ahead(5 * year) }, 422, 'INVALID'],
    ['E38 deliverStartTime 9999', { ...order, deliverStartTime: '9999-12-31T23:59:59Z' }, 422, 'INVALID'],
    ['E39 deliverStartTime 0', { ...order, deliverStartTime: 0 }, 422, 'INVALID'],
    ['E40 deliverStartTime -1', { ...order, deliverStartTime: -1 }, 422, 'INVALID'],
    ['E41 deliverStartTime tomorrow', { ...order, deliverStartTime: 'tomorrow' }, 422, 'INVALID'],
    [
      'E42 deliverStartTime February 30',
      { ...order, deliverStartTime: '2026-02-30T00:00:00Z' },
      422,
      'INVALID'
    ],
    [
      'E43 deliverStartTime without zone',
      { ...order, deliverStartTime: '2026-02-03T00:00:00' },
      422,
      'INVALID'
    ],
    [
      'E44 deliverStartTime at +25:00',
      { ...order, deliverStartTime: '2026-11-20T10:00:00+25:00' },
      422,
      'INVALID'
    ],
    [
      'E45 deliverStartTime 1e20',
      '{"messageCode":"order.paid","messageBody":1,"deliverStartTime":1e20}',
      422,
      'INVALID'
    ],
    ['deliverStartTime in year 0', { ...order, deliverStartTime: '0000-01-01T00:00:00Z' }, 422, 'INVALID'],
    ['deliverStartTime and delay', { ...order, deliverStartTime: ahead(1), delay: 1 }, 422, 'INVALID'],
    ['delay below zero', { ...order, delay: -1 }, 422, 'INVALID'],
    ['delay of half a millisecond', { ...order, delay: 0.5 }, 422, 'INVALID'],
    ['delay beyond a year', { ...order, delay: year + 1 }, 422, 'INVALID'],
    ['deliverBefore past', { ...order, deliverBefore: ahead(-1_000) }, 422, 'INVALID'],
    [
      'deliverBefore at the start',
      { ...order, deliverStartTime: '2026-11-20T10:00:00Z', deliverBefore: '2026-11-20T12:00:00+02:00' },
      422,
      'INVALID'
    ],
    [
      'deliverBefore within the delay',
      { ...order, delay: 60_000, deliverBefore: ahead(30_000) },
      422,
      'INVALID'
    ],
    ['E49 needCallback a string', { ...order, needCallback: 'true' }, 422, 'INVALID'],
    ['E50 needCallback 1', { ...order, needCallback: 1 }, 422, 'INVALID'],
    ['E51 needCallback null', { ...order, needCallback: null }, 422, 'INVALID'],
    ['retryTimes 0', { ...order, retryTimes: 0 }, 422, 'INVALID'],
    ['retryTimes 101', { ...order, retryTimes: 101 }, 422, 'INVALID'],
    ['retryTimes "5"', { ...order, retryTimes: '5' }, 422, 'INVALID'],
    ['extend an array', { ...order, extend: [] }, 422, 'INVALID'],
    ['extend null', { ...order, extend: null }, 422, 'INVALID'],
    ['extend of more than 1,024 characters', { ...order, extend: { a: 'x'.repeat(1_017) } }, 422, 'INVALID'],
    ['E52 an unknown member', { ...order, colour: 'red' }, 422, 'INVALID'],
    ['prepared that is no boolean', { ...order, prepared: 'false' }, 422, 'INVALID'],
    ['checkBack of one that is not prepared', { ...order, checkBack: { after: '35s' } }, 422, 'INVALID'],
    ['after that names nothing', { ...order, after: [] }, 422, 'INVALID'],
    ['bizType without bizKey', { ...order, bizType: 'order' }, 422, 'INVALID'],
    ['orderingKey that is empty', { ...order, orderingKey: '' }, 422, 'INVALID'],
    ['orderingKey with a control character', { ...order, orderingKey: 'a\n' }, 422, 'INVALID'],
    ['orderingKey of more than 128 characters', { ...order, orderingKey: 'x'.repeat(129) }, 422, 'INVALID'],
    [
      'an own __proto__ in the envelope',
      '{"messageCode":"order.paid","messageBody":1,"__proto__":{"x":1}}',
      422,
      'INVALID'
    ],
    [
      'E53 a member twice',
      '{"taskNo":"a","messageCode":"order.paid","messageBody":1,"taskNo":"b"}',
      400,
      'NOT_I_JSON'
    ],
    [
      'a member twice, once escaped',
      '{"taskNo":"a","messageCode":"order.paid","messageBody":1,"t\\u0061skNo":"b"}',
      400,
      'NOT_I_JSON'
    ],
    [
      'a number in the envelope that no double holds',
      '{"messageCode":"order.paid","messageBody":1,"extend":{"n":9007199254740993}}',
      400,
      'NOT_I_JSON'
    ],
    ['not JSON', '{"messageCode":', 400, 'NOT_JSON'],
    ['not UTF-8', Buffer.from([0x22, 0xff, 0x22]), 400, 'NOT_UTF8'],
    ['a byte order mark', `\ufeff${JSON.stringify(order)}`, 400, 'NOT_I_JSON']
  ]
  for (const [name, body, status, code] of cases) {
    const answer = await post(body)
    t.match(
      { status: answer.statusCode, type: answer.headers['content-type'], body: answer.json() },
      { status, type: 'application/problem+json', body: { status, code, title: String } },
      name
    )
  }
  t.equal(stored.size, 0, 'no row for a 4xx')
})

t.test('what is odd but legal is accepted', async t => {
  const { post, asked } = await api(t)
  const cases: [name: string, body: Record<string, unknown>, taskNo: RegExp | string][] = [
    ['E7 no taskNo', order, /^order\.paid::[0-9a-f]{32}$/],
    ['E13 taskNo of one character', { ...order, taskNo: 'x' }, 'x'],
    ['E14 taskNo of 128', { ...order, taskNo: 'x'.repeat(128) }, 'x'.repeat(128)],
    ['E21 taskNo like an integer', { ...order, taskNo: '12345' }, '12345'],
    ['E22 taskNo with a colon', { ...order, taskNo: 'a:b' }, 'a:b'],
    ['E23 taskNo constructor', { ...order, taskNo: 'constructor' }, 'constructor'],
    ['E24 taskNo toString', { ...order, taskNo: 'toString' }, 'toString'],
    ['E28 taskNo', { ...order, taskNo: 'case' }, 'case'],
    ['E28 the same but for its case is another task', { ...order, taskNo: 'CASE' }, 'CASE'],
    [
      'E36 a start time in the past',
      { ...order, taskNo: 'past', deliverStartTime: '2001-01-01T00:00:00Z' },
      'past'
    ],
    ['E46 in 25 days', { ...order, taskNo: 'days', deliverStartTime: ahead(25 * 86_400_000) }, 'days'],
    ['in a year', { ...order, taskNo: 'year', deliverStartTime: inAYear() }, 'year'],
    ['delay 0', { ...order, taskNo: 'zero', delay: 0 }, 'zero'],
    ['an empty sceneType', { ...order, taskNo: 'scene', sceneType: '' }, 'scene'],
    ['a Chinese sceneType', { ...order, taskNo: 'vip', sceneType: '会员·首单 🎉' }, 'vip'],
    ['sceneType of 255', { ...order, taskNo: 'long', sceneType: '会'.repeat(255) }, 'long'],
    ['messageCode of 255', { ...order, taskNo: 'code', messageCode: 'c'.repeat(255) }, 'code'],
    [
      'extend with hostile names',
      { ...order, taskNo: 'ext', extend: JSON.parse('{"__proto__":{"polluted":1},"toJSON":"x"}') as unknown },
      'ext'
    ],
    ['extend of 1,024 characters', { ...order, taskNo: 'ext2', extend: { a: 'x'.repeat(1_016) } }, 'ext2'],
    ['messageBody false', { ...order, taskNo: 'false', messageBody: false }, 'false'],
    ['messageBody an empty string', { ...order, taskNo: 'text', messageBody: '' }, 'text']
  ]
  for (const [name, body, taskNo] of cases) {
    const answer = await post(body)
    t.match(
      { status: answer.statusCode, taskNo: answer.json<{ taskNo: string }>().taskNo },
      { status: 201, taskNo },
      name
    )
  }
  t.equal(asked.length, cases.length)
  const said = (taskNo: string) => asked.find(one => one.taskNo === taskNo)
  t.equal(said('vip')?.sceneType, '会员·首单 🎉')
  t.equal(said('long')?.sceneType, '会'.repeat(255))
  t.equal(said('code')?.messageCode, 'c'.repeat(255))
  t.equal(
    asked.find(one => one.taskNo === 'ext')?.extend,
    '{"__proto__":{"polluted":1},"toJSON":"x"}',
    'extend is kept whole'
  )
  t.equal(Object.getOwnPropertyDescriptor(Object.prototype, 'polluted'), undefined)
})

t.test('everything a producer said reaches the service as it was said', async t => {
  const { app, asked } = await api(t)
  const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  const text =
    '{"taskNo":"all","messageCode":"order.paid","sceneType":"vip","messageBody":  {"n": 1.0, "big": 9007199254740993} ,' +
    '"deliverStartTime":"2026-01-01T00:00:00.0001+02:00","needCallback":false,"retryTimes":3,"extend":{"a":1}}'
  const answer = await inject(app, '/tasks', text, { traceparent })
  t.equal(answer.statusCode, 201)
  t.match(
    asked[0],
    {
      taskNo: 'all',
      sceneType: 'vip',
      messageBody: '{"n": 1.0, "big": 9007199254740993}',
      body: { n: 1 },
      startAt: new Date('2025-12-31T22:00:00.001Z'),
      needCallback: false,
      retryTimes: 3,
      extend: '{"a":1}',
      traceparent,
      createdBy: 'local',
      deliverBefore: null
    },
    'a start time finer than a millisecond is rounded up, never early'
  )
  await inject(app, '/tasks', order, { traceparent: 'nonsense' })
  t.equal(asked[1]?.traceparent, null, 'a malformed traceparent is left out, not refused')
})

t.test('each task of a batch may have its trace, which is no part of its content', async t => {
  const { app, asked } = await api(t)
  const [outer, own] = ['b7ad6b7169203331', 'c8be7c827a314442'].map(
    span => `00-0af7651916cd43dd8448eb211c80319c-${span}-01`
  )
  const tasks = [
    { ...order, taskNo: 'own', traceparent: own },
    { ...order, taskNo: 'outer' },
    { ...order, taskNo: 'malformed', traceparent: 'nonsense' }
  ]
  const answer = await inject(app, '/tasks/batch', { tasks }, { traceparent: String(outer) })
  t.equal(answer.statusCode, 200)
  t.same(
    asked.map(one => one.traceparent),
    [own, outer, outer]
  )
  t.equal(asked[0]?.contentHash, asked[1]?.contentHash)
})

t.test('a problem points at the member that is to blame, and echoes nothing that could do harm', async t => {
  const { post } = await api(t)
  t.match((await post({ ...order, retryTimes: 1000 })).json(), { pointer: '/retryTimes' })
  t.match((await post({ ...order, 'a/b~c': 1 })).json(), { pointer: '/a~1b~0c' })
  const hostile = await post({ ...order, ['<script>\u202e\u0007' + 'x'.repeat(5_000)]: 1 })
  t.equal(hostile.statusCode, 422)
  t.ok(hostile.body.length < 1_000, 'it is cut')
  for (const raw of ['<script>', '\u202e', '\u0007']) t.notOk(hostile.body.includes(raw), 'and escaped')
})

t.test('E85, E86: the same again is 200, other content under the same number is 409', async t => {
  const { post, stored } = await api(t)
  const same = await Promise.all(Array.from({ length: 50 }, () => post({ ...order, taskNo: 'same' })))
  t.same(
    same.map(one => one.statusCode).toSorted((a, b) => a - b),
    [...Array<number>(49).fill(200), 201]
  )
  const other = await Promise.all(
    Array.from({ length: 50 }, (_, cents) => post({ ...order, taskNo: 'other', messageBody: { cents } }))
  )
  t.same(
    other.map(one => one.statusCode).toSorted((a, b) => a - b),
    [201, ...Array<number>(49).fill(409)]
  )
  t.match(other.at(-1)?.json(), { code: 'TASK_CONFLICT', pointer: '/taskNo' })
  t.equal(stored.size, 2)
  const reordered = await post(
    `{ "messageBody":${JSON.stringify(order.messageBody)}, "taskNo":"same", "messageCode":"order.paid"}`
  )
  t.equal(reordered.statusCode, 200, 'the order of the members is no content')
})

t.test('a task posted again after its deliverBefore is still known', async t => {
  const { post, deps } = await api(t)
  const task = { ...order, taskNo: 'soon', deliverBefore: ahead(60_000) }
  t.equal((await post(task)).statusCode, 201)
  const later = new Date(Date.now() + 3_600_000)
  deps.now = () => later
  t.equal((await post(task)).statusCode, 200)
  t.equal((await post({ ...task, taskNo: 'never-seen' })).statusCode, 422)
})

t.test('E54-E56: a body of 262,144 bytes is taken, one more is too large', async t => {
  const { post, stored } = await api(t)
  const sized = (bytes: number) => ({ ...order, taskNo: `b${bytes}`, messageBody: 'x'.repeat(bytes - 2) })
  t.equal((await post(sized(262_143))).statusCode, 201)
  t.equal((await post(sized(262_144))).statusCode, 201)
  const over = await post(sized(262_145))
  t.match(
    { status: over.statusCode, body: over.json() },
    { status: 413, body: { code: 'BODY_TOO_LARGE', pointer: '/messageBody' } }
  )
  const wide = await post({ ...order, taskNo: 'wide', messageBody: '\u20ac'.repeat(87_382) })
  t.equal(wide.statusCode, 413, 'bytes count, not characters')
  t.equal(stored.size, 2)
  const huge = await post({ ...order, messageBody: 'x'.repeat(300 * 1024) })
  t.match(huge.json(), { status: 413, code: 'TOO_LARGE' })
})
