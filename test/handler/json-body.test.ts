import t from 'tap'
import { z } from 'zod'
import type { Task } from '../../src/domain/types.ts'
import type { LoadedHandler } from '../../src/handler/loaded.ts'
import { checkHandler } from '../../src/handler/validate.ts'
import { dryTask } from '../../src/delivery/dry-run.ts'

interface Given {
  transport?: string
  member?: string
  strictBody?: boolean
  deliveryId?: string
}

/** What the downstream `points` would get for this body, and the pointers that were warned of. */
function bodyOf(
  value: unknown,
  { transport = 'http', member = 'body', strictBody, deliveryId = 'd' }: Given = {}
): { text: unknown; warned: string[] } {
  const warned: string[] = []
  const handler = checkHandler(
    {
      messageCode: 'points.earned',
      body: z.unknown(),
      ...(strictBody === undefined ? {} : { strictBody }),
      downstreams: { points: { transport, request: () => ({ [member]: value }) } }
    },
    'points.ts',
    [transport],
    {
      strictBody: false,
      warn: ({ messageCode, downstream, pointer }) => warned.push(`${messageCode} ${downstream} ${pointer}`)
    }
  ) as LoadedHandler
  const task: Task = dryTask({ taskNo: 'a', messageCode: 'points.earned', sceneType: '', messageBody: '1' })
  const request = () =>
    handler.downstreams[0]?.request({ task, body: 1, raw: '1', attempt: 1, deliveryId }) as unknown as {
      [name: string]: unknown
    }
  request()
  return { text: request()[member], warned }
}

t.test('NaN in a body fails the attempt and is named, where JSON would send null', async t => {
  const cases: [unknown, RegExp][] = [
    [{ points: Number.NaN }, /^the body of points has at \/points NaN, which JSON would write as null$/],
    [{ in: [{ cents: Infinity }] }, /at \/in\/0\/cents Infinity,/],
    [[1, -Infinity], /at \/1 -Infinity,/],
    [{ ids: ['a', undefined] }, /at \/ids\/1 undefined, which JSON would write as null/],
    [{ ids: [() => 1] }, /at \/ids\/0 a function,/],
    [{ id: 12n }, /at \/id a bigint, which JSON cannot hold/],
    [{ 'a/b': new Map([[1, 2]]) }, /at \/a~1b a Map, which JSON would write as \{\}/],
    [{ at: new Date(Number.NaN) }, /at \/at a Date that is no time/],
    [{ price: { toJSON: () => Number.NaN } }, /at \/price NaN,/],
    [{ price: Object(Number.NaN) as object }, /at \/price NaN,/]
  ]
  for (const [value, error] of cases) t.throws(() => bodyOf(value), { message: error }, String(error))
  const loop: { self?: object } = {}
  loop.self = loop
  t.throws(() => bodyOf(loop), {
    message: /at \/self\/self\/self more levels than a body may have, or itself/
  })
})

t.test(
  'a value that JSON would write as nothing or as {} fails the attempt: no other body is sent',
  async t => {
    const itself = { cents: Number.NaN, toJSON: () => itself as object }
    const cases: [unknown, RegExp][] = [
      [{ toJSON() {} }, /^the body of points has at its top a toJSON that returns undefined,/],
      [[{ toJSON: () => () => 1 }], /at \/0 a toJSON that returns a function,/],
      [itself, /at \/cents NaN,/],
      [new URLSearchParams('a=1'), /at its top a URLSearchParams, which JSON would write as \{\}/],
      [new ArrayBuffer(4), /an ArrayBuffer,/],
      [{ later: Promise.resolve(1) }, /at \/later a Promise,/],
      [{ match: /a/ }, /at \/match a RegExp,/]
    ]
    for (const [value, error] of cases) t.throws(() => bodyOf(value), { message: error }, String(error))
    class Empty {}
    const text = '{"empty":{},"n":5,"s":"","at":"http://a.test/"}'
    const kept = {
      empty: new Empty(),
      n: Object(5) as object,
      s: Object('') as object,
      at: new URL('http://a.test')
    }
    t.equal(bodyOf(kept).text, text)
  }
)

t.test('a body of the values of JSON is sent as JSON, by each transport that has a body', async t => {
  const value = { a: [1, 'x', null, true, -0.5], at: new Date(0), in: { none: {} } }
  for (const [transport, member] of [
    ['http', 'body'],
    ['kafka', 'value'],
    ['rabbitmq', 'body'],
    ['rocketmq', 'body'],
    ['nats', 'payload']
  ] as const)
    t.same(bodyOf(value, { transport, member }), { text: JSON.stringify(value), warned: [] }, transport)
  t.equal(bodyOf('as it is').text, 'as it is', 'text stays')
  const bytes = new Uint8Array([1])
  t.equal(bodyOf(bytes).text, bytes)
})

t.test(
  'an undefined member is left out with one warning, and fails with strictBody and in a dry run',
  async t => {
    const value = { note: undefined, items: [{ sku: 1, size: undefined }, { size: undefined }] }
    t.same(bodyOf(value), {
      text: '{"items":[{"sku":1},{}]}',
      warned: ['points.earned points /note', 'points.earned points /items/0/size']
    })
    t.same(bodyOf({ price: { toJSON() {} } }), { text: '{}', warned: ['points.earned points /price'] })
    const error = {
      message: /^the body of points has at \/note undefined: JSON would leave the member out; write null/
    }
    t.throws(() => bodyOf(value, { strictBody: true }), error)
    t.throws(() => bodyOf(value, { deliveryId: 'dry-run' }), error)
  }
)
