import t from 'tap'
import { demoEnv } from '../../src/demo/receiver.ts'
import { builtInHandlers } from '../../src/handler/files.ts'
import { HandlersError, loadHandlers } from '../../src/handler/load.ts'
import { transportNames } from '../../src/transport/registry.ts'
import type { Task } from '../../src/domain/types.ts'

const samples = (env: Record<string, string>) =>
  loadHandlers({ builtIn: builtInHandlers, env, transports: transportNames })
const task: Task = {
  id: '1',
  taskNo: 'A-1',
  messageCode: 'order.paid',
  sceneType: '',
  messageBody: '{}',
  deliverStartTime: null,
  needCallback: null,
  retryTimes: null,
  orderingKey: null,
  extend: null,
  traceparent: null,
  createdAt: new Date(0),
  createdBy: 'test'
}

t.test('the samples load with what the demo sets, and each needs nothing else', async t => {
  const { handlers, downstreams } = await samples(demoEnv('http://127.0.0.1:1'))
  t.same([...handlers.keys()].toSorted(), ['audit.log', 'material.sync', 'order.paid'])
  t.same([...downstreams.keys()].toSorted(), ['ads', 'audit', 'reports', 'review', 'search', 'warehouse'])
  const owing = [...handlers.values()].flatMap(each =>
    each.downstreams.filter(({ needCallback }) => needCallback)
  )
  t.same(owing.map(({ name }) => name).toSorted(), ['ads', 'review', 'warehouse'])
})

t.test('without the demo, the samples say which names to set', async t => {
  const err: unknown = await samples({}).catch((thrown: unknown) => thrown)
  t.type(err, HandlersError)
  const { HELLO_URL: _ofTheProjectOfInit, ...names } = demoEnv('')
  for (const name of Object.keys(names)) t.match(String(err), new RegExp(`it needs ${name}, `))
})

t.test('an order goes to its own path, with the very text that was posted', async t => {
  const { handlers } = await samples(demoEnv('http://127.0.0.1:1'))
  const raw = '{"orderId":"A/7", "cents":1}'
  const [warehouse] = handlers.get('order.paid')?.downstreams ?? []
  const request = await warehouse?.request({
    task,
    body: { orderId: 'A/7', cents: 1 },
    raw,
    attempt: 1,
    deliveryId: 'd'
  })
  t.match(request, { url: 'http://127.0.0.1:1/orders/A%2F7/paid', body: raw })
})

t.test('the warehouse takes an order only when its body says so too', async t => {
  const { handlers } = await samples(demoEnv('http://127.0.0.1:1'))
  const accepted = (status: number, json: unknown) =>
    handlers
      .get('order.paid')
      ?.downstreams[0]?.accepted?.({ status, json: json as never, headers: {}, text: '' }, { task, body: {} })
  t.equal(accepted(200, { code: 0 }), true)
  t.equal(accepted(200, { code: 500 }), false)
  t.equal(accepted(200, null), false)
  t.equal(accepted(200, undefined), false)
  t.equal(accepted(410, undefined), 'refused')
})

t.test('a receipt that says short of stock is tried again, any other counts as it says', async t => {
  const { handlers } = await samples(demoEnv('http://127.0.0.1:1'))
  const made = (receipt: { result: 'HANDLED' | 'FAILED'; data?: unknown }) =>
    handlers
      .get('order.paid')
      ?.onReceipt?.({ receipt: { ...receipt, downstream: 'warehouse', attempt: 1 }, task, body: {} })
  t.equal(await made({ result: 'HANDLED', data: { short: true } }), 'RETRY')
  t.equal(await made({ result: 'HANDLED' }), 'HANDLED')
  t.equal(await made({ result: 'FAILED', data: 7 }), 'FAILED')
})

t.test('a removed material needs no review, a changed one does', async t => {
  const { handlers } = await samples(demoEnv('http://127.0.0.1:1'))
  const review = handlers.get('material.sync')?.downstreams.find(({ name }) => name === 'review')
  t.equal(review?.when?.({ task, body: { change: 'removed' } }), false)
  t.equal(review?.when?.({ task, body: { change: 'updated' } }), true)
})
