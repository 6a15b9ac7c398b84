import t from 'tap'
import type { DeliveryView } from '../../src/db/views.ts'
import { taskText } from '../../src/api/body.ts'
import { api } from './fake.ts'

const task = (taskNo: string, body: string) =>
  `{"taskNo":"${taskNo}","messageCode":"order.paid","messageBody":${body}}`
const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)

t.test('the data of a receipt is shown as its own text too, and the rest of the task as ever', async t => {
  const receipt = { attempt: 1, result: 'HANDLED', applied: true, late: false, createdAt: 'now' }
  const delivery: DeliveryView = {
    downstream: 'warehouse',
    status: 'HANDLED',
    attempt: 1,
    triesLeft: 9,
    updatedAt: 'now'
  }
  const data = '{ "stockId": 1234567890123456789, "n": 1e400 }'
  const rest = {
    taskNo: 'one',
    messageCode: 'order.paid',
    sceneType: '',
    status: 'HANDLED',
    createdAt: 'now',
    createdBy: 'shop'
  } as const
  const text = taskText({
    ...rest,
    messageBody: '1.0',
    deliveries: [{ ...delivery, receipts: [receipt, { ...receipt, data }] }, delivery]
  })
  t.ok(text.includes(`"data":${data}`), text)
  t.ok(text.endsWith(',"messageBody":1.0}'), text)
  t.same(JSON.parse(text.replace(data, '7')), {
    ...rest,
    messageBody: 1,
    deliveries: [{ ...delivery, receipts: [receipt, { ...receipt, data: 7 }] }, delivery]
  })
})

t.test('a messageBody that can be carried unchanged is accepted, kept and shown as its own text', async t => {
  const { post, app, stored } = await api(t)
  const bodies: [name: string, text: string][] = [
    ['depth 64', nested(64)],
    ['a key of 200 kB', `{"${'k'.repeat(200_000)}":1}`],
    ['255 kB of escapes', `"${'\\u0041'.repeat(43_000)}"`],
    ['line separators', '"\u2028\u2029"'],
    ['markup', '"</script><img onerror=alert(1)>"'],
    ['__proto__', '{"__proto__":{"polluted":1}}'],
    ['constructor', '{"constructor":{"prototype":{"polluted":1}}}'],
    ['toJSON', '{"toJSON":"x"}'],
    ['then', '{"then":{}}'],
    ['a large integer', '9007199254740993'],
    ['a large exponent', '{"n":1e400}'],
    ['minus zero', '-0'],
    ['1.0', '1.0'],
    ['a long fraction', '0.1000000000000000055511151231257827'],
    ['400 digits', '1'.repeat(400)],
    ['a formula', `"=cmd|' /C calc'!A0"`],
    ['emoji', `"${'\u{1f468}\u200d\u{1f469}'.repeat(5_000)}"`],
    ['right to left', '"\u202egnirts"'],
    ['white space', '{ "a" :\t1 }']
  ]
  for (const [name, text] of bodies) {
    const answer = await post(task(`b${bodies.findIndex(one => one[0] === name)}`, text))
    t.equal(answer.statusCode, 201, name)
    const { taskNo } = answer.json<{ taskNo: string }>()
    t.equal(stored.get(taskNo)?.task.messageBody, text, `${name}: stored as posted`)
    const shown = await app.inject(`/tasks/${taskNo}`)
    t.ok(shown.body.endsWith(`,"messageBody":${text}}`), `${name}: shown as posted`)
    t.equal(shown.statusCode, 200)
  }
  t.equal((Object.prototype as { polluted?: unknown }).polluted, undefined)
})

t.test('a messageBody that cannot be carried unchanged, or would hurt, is refused', async t => {
  const { post, stored } = await api(t)
  const bodies: [name: string, text: string | Buffer, code: string][] = [
    ['depth 65', nested(65), 'TOO_DEEP'],
    ['5,000 arrays', nested(5_000), 'TOO_DEEP'],
    ['40,000 objects', '{"a":'.repeat(40_000) + '1' + '}'.repeat(40_000), 'TOO_DEEP'],
    [
      '20,001 members',
      `{${Array.from({ length: 20_001 }, (_, i) => `"k${i}":1`).join()}}`,
      'TOO_MANY_MEMBERS'
    ],
    ['U+0000', '"\\u0000"', 'NOT_I_JSON'],
    ['a lone surrogate', '"\\ud800"', 'NOT_I_JSON'],
    ['a member twice', '{"a":1,"a":2}', 'NOT_I_JSON'],
    ['NaN', 'NaN', 'NOT_JSON'],
    ['a trailing comma', '[1,]', 'NOT_JSON']
  ]
  for (const [name, text, code] of bodies) {
    const answer = await post(task('x', String(text)))
    t.match({ status: answer.statusCode, body: answer.json() }, { status: 400, body: { code } }, name)
  }
  const raw = await post(
    Buffer.concat([
      Buffer.from('{"messageCode":"order.paid","messageBody":"'),
      Buffer.from([0xed, 0xa0, 0x80]),
      Buffer.from('"}')
    ])
  )
  t.match(raw.json(), { status: 400, code: 'NOT_UTF8' }, 'raw surrogate bytes')
  t.equal(stored.size, 0)
})
