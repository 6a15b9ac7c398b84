import t from 'tap'
import { api, inject } from './fake.ts'

const secretOf = (name: string): string => `ack_${name.padEnd(24, '0')}`
const bearer = (name: string) => ({ authorization: `Bearer ${secretOf(name)}` })
const task = (taskNo: string, more: object = {}) => ({
  taskNo,
  messageCode: 'order.paid',
  messageBody: { orderId: 'A-1' },
  ...more
})

t.test('what would be sent now is answered, or why there is nothing to send', async t => {
  const { app, deps } = await api(t)
  for (const taskNo of ['there', 'removed', 'throws']) await inject(app, '/tasks', task(taskNo))
  const read = async (taskNo: string, downstream = 'warehouse') =>
    (await app.inject(`/tasks/${taskNo}/deliveries/${downstream}/request`)).json<object>()
  t.match(await read('there'), { taskNo: 'there', downstream: 'warehouse', attempt: 2 })
  t.match(await read('nobody'), { status: 404, code: 'TASK_NOT_FOUND' })
  for (const name of ['mail', 'No%20name', '%00'])
    t.match(await read('there', name), { status: 404, code: 'DOWNSTREAM_NOT_FOUND' }, name)
  t.match(await read('throws'), { status: 409, code: 'NO_REQUEST', detail: 'no price \\u003cb\\u003e' })
  t.match(await read('removed'), {
    status: 409,
    code: 'NO_REQUEST',
    detail: 'The handler of order.paid has no downstream of this name.'
  })
  deps.handlers = new Map()
  t.match(await read('removed'), { status: 422, code: 'UNKNOWN_CODE' })
})

t.test('a half message sends nothing before its commit', async t => {
  const { app } = await api(t)
  const posted = await inject(app, '/tasks', task('half', { prepared: true }))
  t.equal(posted.statusCode, 201)
  t.match((await app.inject('/tasks/half/deliveries/warehouse/request')).json(), {
    status: 409,
    code: 'TASK_PREPARED'
  })
})

t.test('only a key that may read the body of a task is told what was sent', async t => {
  const { app, addKey } = await api(t, { auth: true })
  addKey(secretOf('writer'), { id: 'writer', scopes: ['tasks:write'] })
  addKey(secretOf('reader'), { id: 'reader', scopes: ['tasks:read'] })
  addKey(secretOf('ops'), { id: 'ops', scopes: ['ops:read', 'ops:write'] })
  addKey(secretOf('bound'), { id: 'bound', scopes: ['tasks:read'], messageCodes: ['other.code'] })
  await inject(app, '/tasks', task('there'), bearer('writer'))
  const read = async (name: string, path = '') =>
    app.inject({ url: `/tasks/there${path}`, headers: bearer(name) })
  const request = '/deliveries/warehouse/request'
  t.match((await read('reader')).json(), {
    deliveries: [{ attempts: [{ request: { target: 'https://a.test/' } }] }]
  })
  const seen = await read('ops')
  t.match(seen.json(), { deliveries: [{ attempts: [{ reason: 'http_503' }] }] })
  t.notMatch(seen.body, /a\.test|handlerVersion/)
  t.equal((await read('reader', request)).statusCode, 200)
  t.equal((await read('ops', request)).statusCode, 403)
  t.equal((await read('bound', request)).statusCode, 404)
})
