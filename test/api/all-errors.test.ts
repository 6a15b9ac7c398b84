// A caller corrects a refused task only once: the answer lists every error that can be found without storing the task.
import { pino } from 'pino'
import t from 'tap'
import { z } from 'zod'
import { outboxReader } from '../../src/api/outbox-row.ts'
import type { OutboxRow } from '../../src/db/outbox.ts'
import { chineseTitles } from '../../src/api/chinese-problems.ts'
import { scopes } from '../../src/db/api-keys.ts'
import { refusalBy } from '../../src/delivery/handler-refusal.ts'
import { checkHandler } from '../../src/handler/validate.ts'
import { api, inject, order } from './fake.ts'
import { only } from '../support/only.ts'

const log = pino({ level: 'silent' })
const loaded = (messageCode: string) => {
  const request = () => ({ url: 'http://127.0.0.1:1', body: '' })
  const handler = checkHandler(
    {
      messageCode,
      body: z.object({ orderId: z.string(), cents: z.int() }),
      downstreams: { warehouse: { transport: 'http', request } }
    },
    'order.ts',
    ['http']
  )
  if (Array.isArray(handler)) throw new Error(JSON.stringify(handler))
  return handler
}
const handlers = new Map(['order.paid', 'stock.moved'].map(code => [code, loaded(code)]))
const refusal = refusalBy(handlers, log)
const service = (t: Parameters<typeof api>[0], more: object = {}) =>
  api(t, {
    refusal,
    handlers,
    accept: async one => refusal(one) ?? { kind: 'conflict' },
    acceptMany: async many => many.map(one => refusal(one) ?? { kind: 'conflict' }),
    ...more
  })

interface Answer {
  status: number
  code: string
  pointer: string
  errors: { detail: string; pointer: string }[]
}
const places = ({ errors }: Answer) => errors.map(one => one.pointer)

/** Wrong in every way: single members, combinations of members, rules for a new task, and the schema of the handler. */
const wrong = {
  ...order,
  messageBody: { orderId: 7 },
  retryTimes: 0,
  bizKey: 'A-1',
  delay: 60_000,
  deliverStartTime: '2100-01-01T00:00:00Z',
  checkBack: {},
  needCallback: true,
  colour: 'red'
}
const everywhere = [
  '/retryTimes',
  '/colour',
  '/checkBack',
  '/bizType',
  '/delay',
  '/deliverStartTime',
  '/needCallback',
  '/messageBody/orderId',
  '/messageBody/cents'
]

t.test('every error of a task is named at once, each with its place', async t => {
  const { app } = await service(t)
  const answer = (await inject(app, '/tasks', wrong)).json<Answer>()
  t.match(answer, { status: 422, code: 'INVALID', pointer: '/retryTimes' })
  t.same(places(answer), everywhere)

  const batch = await inject(app, '/tasks/batch', { tasks: [order, wrong] })
  const [, second] = batch.json<{ results: Answer[] }>().results
  t.same(
    second && places(second),
    everywhere.map(pointer => `/tasks/1${pointer}`),
    'also within a batch'
  )
})

t.test('members that only contradict each other are named with what the handler refuses', async t => {
  const { app } = await service(t)
  const { retryTimes: _, colour: __, ...task } = wrong
  const answer = (await inject(app, '/tasks', task)).json<Answer>()
  t.same(places(answer), everywhere.slice(2))
  const late = { ...order, messageBody: {}, deliverBefore: '2001-01-01T00:00:00Z' }
  t.same(places((await inject(app, '/tasks', late)).json<Answer>()), [
    '/deliverBefore',
    '/messageBody/orderId',
    '/messageBody/cents'
  ])
  const half = { ...order, messageBody: {}, prepared: true, needCallback: true }
  const refused = (await inject(app, '/tasks', half)).json<Answer>()
  t.match(refused, { status: 422, code: 'NO_CHECK_BACK', pointer: '/prepared' }, 'the code of the first')
  t.same(places(refused), ['/prepared', '/needCallback', '/messageBody/orderId', '/messageBody/cents'])
})

t.test('a misspelt messageCode and a body that is too large are named among the others', async t => {
  const { app } = await service(t)
  const misspelt = { ...order, messageCode: 'order.piad', bizKey: 'A-1' }
  t.match((await inject(app, '/tasks', misspelt)).json(), {
    code: 'INVALID',
    errors: only(
      { pointer: '/bizType' },
      {
        pointer: '/messageCode',
        detail: 'No handler for this messageCode: order.piad. Did you mean order.paid?'
      }
    )
  })
  const chinese = await inject(app, '/tasks', misspelt, { 'accept-language': 'zh' })
  t.equal(
    chinese.json<Answer>().errors[1]?.detail,
    `${chineseTitles.UNKNOWN_CODE}: order.piad。是不是 order.paid？`
  )
  const large = { ...order, bizKey: 'A-1', messageBody: { orderId: 'x'.repeat(262_144) } }
  const answer = (await inject(app, '/tasks', large)).json<Answer>()
  t.match(answer, { status: 413, code: 'BODY_TOO_LARGE', pointer: '/messageBody' })
  t.same(places(answer), ['/messageBody', '/bizType'], 'a body that is too large is not checked')
})

t.test('no error is named that comes from another error', async t => {
  const { app } = await service(t)
  const unfit = { ...order, prepared: 'yes', checkBack: {}, bizType: 7, bizKey: 'A-1' }
  const answer = (await inject(app, '/tasks', { ...unfit, messageBody: null })).json<Answer>()
  t.same(places(answer).toSorted(), ['/bizType', '/messageBody', '/prepared'])
})

t.test('a key learns nothing of handlers that it may not use', async t => {
  const { app, addKey } = await service(t, { auth: true })
  addKey(`ack_${'a'.repeat(30)}`, { scopes, messageCodes: ['stock.moved'] })
  const bearer = { authorization: `Bearer ack_${'a'.repeat(30)}` }
  t.match((await inject(app, '/tasks', { ...wrong, retryTimes: 1 }, bearer)).json(), { code: 'INVALID' })
  const { retryTimes: _, colour: __, ...task } = wrong
  const answer = (await inject(app, '/tasks', task, bearer)).json<Answer>()
  t.match(answer, { status: 403, code: 'CODE_FORBIDDEN', pointer: '/messageCode' })
  t.notOk(answer.errors, 'only that')
  const unfit = (await inject(app, '/tasks', wrong, bearer)).json<Answer>()
  t.same(places(unfit), everywhere.slice(0, 6), 'not what the handler would refuse')
})

/** The characters of all texts that `replace` goes through meanwhile. */
async function replacedIn(work: () => Promise<unknown>): Promise<number> {
  const { replace } = String.prototype
  let characters = 0
  String.prototype.replace = function (this: string, ...given: [never, never]) {
    characters += this.length
    return replace.apply(this, given)
  }
  try {
    await work()
  } finally {
    String.prototype.replace = replace
  }
  return characters
}

t.test(
  'long names of unknown members are cut before they are escaped, and each error has its own',
  async t => {
    const { app } = await service(t)
    const names = Array.from({ length: 24 }, (_, i) => `${i}-${'<'.repeat(3_000)}`)
    const body = { taskNo: 'one', messageCode: 'b', ...Object.fromEntries(names.map(name => [name, 1])) }
    let answer: Answer | undefined
    const characters = await replacedIn(async () => {
      answer = (await inject(app, '/callback', body)).json<Answer>()
    })
    t.ok(characters < 50_000, `${characters} characters of a body of ${JSON.stringify(body).length}`)
    t.match(answer, { status: 422, code: 'INVALID', pointer: /^\/0-\\u003c/ })
    t.equal(answer?.errors.length, 20)
    for (const [i, { detail, pointer }] of answer?.errors.entries() ?? []) {
      t.ok(detail.startsWith(`Unrecognized key: "${i}-\\u003c`), detail)
      t.ok(pointer.startsWith(`/${i}-\\u003c`) && pointer.endsWith('...'), pointer)
    }
  }
)

const outboxRow = {
  id: 1,
  taskNo: null,
  messageCode: 'order.paid',
  sceneType: '',
  messageBody: '{}',
  bodyBytes: 2,
  extend: null,
  extendBytes: null,
  members: null,
  membersBytes: null,
  deliverStartTime: null,
  delayMs: null,
  deliverBefore: null,
  orderingKey: null,
  needCallback: null,
  retryTimes: null,
  bizType: null,
  bizKey: 'A-1',
  traceparent: null,
  createdBy: 'sql:shop',
  createdAt: new Date(),
  shard: null
} satisfies OutboxRow

t.test('a row of the outbox is rejected with all its errors too', async t => {
  const read = outboxReader(handlers, log).read(outboxRow)
  t.match(read, {
    problem: {
      errors: only(
        { pointer: '/bizType' },
        { pointer: '/messageBody/orderId' },
        { pointer: '/messageBody/cents' }
      )
    }
  })
})

t.test('an answer names at most 20 errors', async t => {
  const { app } = await service(t)
  const names = Array.from({ length: 30 }, (_, at) => [`m${at}`, 1])
  const answer = await inject(app, '/tasks', { ...order, ...Object.fromEntries(names) })
  t.equal(answer.json<Answer>().errors.length, 20)
})

t.test('where a row of the outbox is not JSON is told by the bytes of its own text', async t => {
  const { read } = outboxReader(handlers, log)
  for (const [row, detail] of [
    [{ messageBody: '{"é":}' }, 'Expected a value, found }, at byte 6'],
    [{ messageBody: '{"a":1', extend: '{"b":2}' }, 'Expected a comma or }, but the text ends, at byte 6'],
    [{ messageBody: '{"a":1}', extend: '{"b":}' }, 'Expected a value, found }, at byte 5']
  ] as const)
    t.match(read({ ...outboxRow, ...row }), { problem: { code: 'NOT_JSON', detail } })
})
