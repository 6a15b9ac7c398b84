import t from 'tap'
import { difference, extendOf, originOf, postOf, samePost, takeOver } from '../../src/ui/copy-task.ts'
import type { Task } from '../../src/ui/shapes.ts'

const now = new Date('2026-11-24T10:00:00.000Z')
const task: Task = {
  taskNo: 'order-1',
  messageCode: 'order.paid',
  sceneType: 'vip',
  status: 'FAILED',
  createdAt: '2026-11-23T10:00:00.000Z',
  orderingKey: 'order',
  bizType: 'order',
  bizKey: '1',
  uniqueBiz: true,
  needCallback: false,
  retryTimes: 3,
  extend: { by: 'shop' },
  deliverStartTime: '2026-11-23T12:00:00.000Z',
  deliverBefore: '2026-11-25T10:00:00.000Z',
  after: ['order-0'],
  deliveries: []
}
const body = '{"n":12345678901234567890,"price":1.10}'

t.test('a copy takes over what the task was posted with, and says what not', async t => {
  const { taken, left } = takeOver(task, now)
  t.same(taken, ['orderingKey', 'bizType', 'bizKey', 'needCallback', 'retryTimes', 'deliverBefore', 'after'])
  t.same(left, ['uniqueBiz', 'deliverStartTime'], 'a second one would be refused; that time has passed')
  const text = postOf(task, 'order-1-2', taken, extendOf(task, ['- 1', '+ 2']), body)
  t.ok(text.endsWith(`,"messageBody":${body}}`), 'the body as it was written')
  const { messageBody: _, ...posted } = JSON.parse(text) as Record<string, unknown>
  t.same(posted, {
    taskNo: 'order-1-2',
    messageCode: 'order.paid',
    sceneType: 'vip',
    orderingKey: 'order',
    bizType: 'order',
    bizKey: '1',
    needCallback: false,
    retryTimes: 3,
    deliverBefore: '2026-11-25T10:00:00.000Z',
    after: ['order-0'],
    extend: { by: 'shop', copiedFrom: 'order-1', difference: '- 1\n+ 2' }
  })
})

t.test('as curl it is the very same task, a half message as one', async t => {
  const { messageBody: _, ...posted } = JSON.parse(samePost(task, body)) as Record<string, unknown>
  const { status: _s, createdAt: _c, deliveries: _d, ...members } = task
  t.same(posted, members)
  const half = { ...task, prepared: { preparedAt: task.createdAt, checks: 0 } }
  t.match(JSON.parse(samePost(half, body)), { prepared: true, taskNo: 'order-1' })
})

t.test('where a copy comes from stays short enough to be taken', async t => {
  const long = Array.from({ length: 300 }, (_, n) => `+ "line" ${n}`)
  for (const extend of [undefined, { by: 'x'.repeat(700) }, { by: 'x'.repeat(1_000) }]) {
    const kept = extendOf({ ...task, extend }, long)
    t.ok(JSON.stringify(kept).length <= 1_024, String(JSON.stringify(kept).length))
    t.match(kept, extend ?? { copiedFrom: 'order-1' })
  }
  t.same(originOf({ extend: extendOf(task, ['- 1']) }), { copiedFrom: 'order-1', difference: '- 1' })
  t.equal(originOf({ extend: { copiedFrom: 1 } }), undefined)
  t.equal(originOf({}), undefined)
  const again = extendOf({ ...task, taskNo: 'order-1-2', extend: extendOf(task, ['- 1']) }, ['- 2'])
  t.same(again, { by: 'shop', copiedFrom: 'order-1-2', difference: '- 2' }, 'of the copy of a copy')
})

t.test('a difference is what lies between a common beginning and a common end', async t => {
  t.same(difference(['a', 'b', 'c'], ['a', 'x', 'c']), ['- b', '+ x'])
  t.same(difference(['a'], ['a']), [])
})
