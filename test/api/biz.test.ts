import t from 'tap'
import type { TaskFilter } from '../../src/db/search.ts'
import { api, order } from './fake.ts'
import { only } from '../support/only.ts'

t.test('a business key is both its parts or neither, and what lacks one is told which', async t => {
  const { post, asked } = await api(t)
  t.equal((await post({ ...order, taskNo: 'a', bizType: 'order', bizKey: '42' })).statusCode, 201)
  t.equal((await post({ ...order, taskNo: 'b' })).statusCode, 201)
  t.match(asked[0]?.biz, { type: 'order', key: '42', unique: false })
  t.equal(asked[1]?.biz, null)
  for (const [members, pointer] of [
    [{ bizType: 'order' }, '/bizKey'],
    [{ bizKey: '42' }, '/bizType'],
    [{ uniqueBiz: true }, '/bizType'],
    [{ bizType: '', bizKey: '42' }, '/bizType'],
    [{ bizType: 'x'.repeat(65), bizKey: '42' }, '/bizType'],
    [{ bizType: 'order', bizKey: 'x'.repeat(129) }, '/bizKey'],
    [{ bizType: 'order', bizKey: 'a\u0001b' }, '/bizKey'],
    [{ bizType: 'order', bizKey: 42 }, '/bizKey']
  ] as const)
    t.match((await post({ ...order, ...members })).json(), { status: 422, code: 'INVALID', pointer })
})

t.test('a business thing that has its task is 409 of its own code, and says whose it is', async t => {
  const { post } = await api(t, { accept: async () => ({ kind: 'biz_conflict', by: 'order-1' }) })
  t.match((await post({ ...order, bizType: 'order', bizKey: '42', uniqueBiz: true })).json(), {
    status: 409,
    code: 'BIZ_CONFLICT',
    detail: 'order-1',
    pointer: '/bizKey'
  })
})

t.test('a search for a business thing is of all times; for its key alone it is refused', async t => {
  const filters: TaskFilter[] = []
  const { app } = await api(t, {
    listTasks: async filter => {
      filters.push(filter)
      return { tasks: [] }
    }
  })
  t.equal((await app.inject('/tasks?bizType=order&bizKey=42')).statusCode, 200)
  t.match(filters, only({ bizType: 'order', bizKey: '42', from: new Date(0) }))
  t.equal((await app.inject('/tasks?bizType=order&bizKey=42&from=2026-01-01T00:00:00Z')).statusCode, 200)
  t.match(filters[1], { from: new Date('2026-01-01T00:00:00Z') })
  t.equal((await app.inject('/tasks?bizType=order')).statusCode, 200)
  t.ok((filters[2]?.from.getTime() ?? 0) > 0, 'a whole kind is not looked for in all times')
  t.match((await app.inject('/tasks?bizKey=42')).json(), { status: 422, pointer: '?/bizKey' })
  t.equal((await app.inject('/tasks?bizType=order&bizKey=%00')).statusCode, 422)
})
