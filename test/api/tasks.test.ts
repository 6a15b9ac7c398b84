import { once } from 'node:events'
import { request } from 'node:http'
import t from 'tap'
import { api, inject, listening, order } from './fake.ts'
import type { TaskRequest } from '../../src/delivery/accept.ts'
import { Unavailable } from '../../src/runtime/errors.ts'
import { only } from '../support/only.ts'

t.test('a task is read with its attempts, and one that is not there is 404', async t => {
  const { app, post } = await api(t)
  await post({ ...order, taskNo: 'one' })
  t.match((await app.inject('/tasks/one')).json(), {
    taskNo: 'one',
    status: 'SENDING',
    messageBody: order.messageBody,
    deliveries: [{ attempts: only({ outcome: 'failed' }) }]
  })
  t.match((await app.inject('/tasks/other')).json(), { status: 404, code: 'TASK_NOT_FOUND' })
  t.equal((await app.inject({ method: 'HEAD', url: '/tasks/one' })).statusCode, 200)
})

t.test('who waits for a task is answered when it ends, or at the timeout', async t => {
  const { app, post, stored } = await api(t)
  await post({ ...order, taskNo: 'one' })
  const waiter = app.inject('/tasks/one?wait=HANDLED&timeout=30')
  const one = stored.get('one')
  if (one) one.task.status = 'HANDLED'
  t.match((await waiter).json(), { status: 'HANDLED' })

  await post({ ...order, taskNo: 'two' })
  t.match(
    (await app.inject('/tasks/two?wait=HANDLED&timeout=1')).json(),
    { status: 'SENDING' },
    'at the timeout with the state of then'
  )
  t.equal((await app.inject('/tasks/none?wait=HANDLED')).statusCode, 404)
  for (const query of [
    'wait=FAILED',
    'wait=HANDLED&timeout=0',
    'wait=HANDLED&timeout=61',
    'wait=HANDLED&timeout=1.5',
    'timeout=',
    'timeout=5',
    'wat=1',
    'wait=HANDLED&wait=HANDLED'
  ]) {
    t.match(
      (await app.inject(`/tasks/two?${query}`)).json(),
      { status: 422, code: 'INVALID', pointer: /^\?\// },
      query
    )
  }
})

t.test('refused tasks are counted by messageCode, and what nobody knows makes no series', async t => {
  const { app, post, deps } = await api(t)
  const refused = async () =>
    (await deps.metrics.render()).split('\n').filter(line => line.includes('kind="refused"'))
  await post({ ...order, taskNo: 'one' })
  await post({ ...order, taskNo: 'one', messageBody: {} })
  t.same(await refused(), [], 'a conflict is counted as such')
  t.equal((await post({ ...order, retryTimes: -1 })).statusCode, 422)
  for (const messageCode of ['nobody.knows', 7]) await post({ ...order, messageCode })
  for (const body of ['no JSON', '[]']) await post(body)
  const series = 'ackbox_accepts_total{message_code="order.paid",kind="refused"}'
  t.same(await refused(), [`${series} 1`])
  const tasks = [
    order,
    { ...order, delay: 'soon' },
    { ...order, taskNo: 'one', messageBody: {} },
    7,
    { messageCode: 'x' }
  ]
  t.equal((await inject(app, '/tasks/batch', { tasks })).statusCode, 200)
  t.same(await refused(), [`${series} 2`])
})

t.test('too many who wait are sent away with a time to come back', async t => {
  const { app, post } = await api(t, { waitTask: async () => 'busy' })
  await post({ ...order, taskNo: 'one' })
  const answer = await app.inject('/tasks/one?wait=HANDLED')
  t.match(
    { body: answer.json(), retry: answer.headers['retry-after'] },
    { body: { status: 429, code: 'TOO_MANY_WAITERS' }, retry: '1' }
  )
})

t.test('a caller who hangs up no longer waits', async t => {
  let begun = () => {}
  const waits = new Promise<void>(resolve => {
    begun = resolve
  })
  let aborted = () => {}
  const seen = new Promise<void>(resolve => {
    aborted = resolve
  })
  const { origin, post } = await listening(t, {
    waitTask: async (_taskNo, _owner, _ms, signal) => {
      begun()
      await once(signal, 'abort')
      aborted()
      return null
    }
  })
  await post({ ...order, taskNo: 'one' })
  const call = request(`${origin}/tasks/one?wait=HANDLED`)
    .on('error', () => {})
    .end()
  await waits
  call.destroy()
  await seen
  t.pass()
})

t.test(
  'tasks are listed for the last day unless asked otherwise, and a cursor that is none is refused',
  async t => {
    const filters: object[] = []
    const { app, post, deps } = await api(t)
    const listTasks = deps.listTasks.bind(deps)
    deps.listTasks = async filter => {
      filters.push(filter)
      return await listTasks(filter)
    }
    for (const taskNo of ['a', 'b', 'c']) await post({ ...order, taskNo })
    t.match((await app.inject('/tasks')).json(), {
      tasks: only({ taskNo: 'a' }, { taskNo: 'b' }, { taskNo: 'c' })
    })
    t.match((await app.inject('/tasks?limit=2')).json(), { tasks: { length: 2 }, nextCursor: 'more' })
    const query =
      'status=FAILED&messageCode=order.paid&sceneType=&downstream=warehouse&needCallback=true&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00%2B01:00&cursor=abc~1&limit=200'
    t.equal((await app.inject(`/tasks?${query}`)).statusCode, 200)
    t.match(filters[0], { limit: 50, messageCodes: null, from: Date })
    t.same(filters[2], {
      status: 'FAILED',
      messageCode: 'order.paid',
      sceneType: '',
      downstream: 'warehouse',
      needCallback: true,
      cursor: 'abc~1',
      from: new Date('2026-01-01T00:00:00Z'),
      to: new Date('2026-01-01T23:00:00Z'),
      limit: 200,
      messageCodes: null
    })
    t.match((await app.inject('/tasks?cursor=nonsense')).json(), { status: 422, pointer: '?/cursor' })
    for (const bad of [
      'limit=0',
      'limit=201',
      'limit=1e2',
      'limit=-1',
      'status=DONE',
      'needCallback=1',
      'from=yesterday',
      'color=red',
      'cursor=%27%3B--',
      '__proto__=1',
      'limit=1&limit=2'
    ]) {
      t.match((await app.inject(`/tasks?${bad}`)).json(), { status: 422, code: 'INVALID' }, bad)
    }
  }
)

t.test(
  'delete and redeliver do what they can, say when there is nothing to do, and leave a record of who asked',
  async t => {
    const { app, post, audits, stored } = await api(t)
    await post({ ...order, taskNo: 'one' })
    t.match((await app.inject({ method: 'DELETE', url: '/tasks/one' })).json(), {
      taskNo: 'one',
      status: 'DELETED'
    })
    t.match((await app.inject({ method: 'DELETE', url: '/tasks/one' })).json(), {
      status: 409,
      code: 'NOTHING_TO_STOP'
    })
    t.match((await app.inject({ method: 'DELETE', url: '/tasks/none' })).json(), { status: 404 })
    t.match((await app.inject({ method: 'POST', url: '/tasks/one/redeliver' })).json(), {
      status: 409,
      code: 'NOTHING_TO_REDELIVER'
    })
    t.match((await inject(app, '/tasks/one/redeliver', { force: true, downstream: 'warehouse' })).json(), {
      status: 'SENDING'
    })
    const one = stored.get('one')
    if (one) one.task.status = 'FAILED'
    t.match(
      (await inject(app, '/tasks/one/redeliver', '')).json(),
      { status: 'SENDING' },
      'an empty body is no body'
    )
    t.match((await inject(app, '/tasks/one/redeliver', { force: 'yes' })).json(), {
      status: 422,
      pointer: '/force'
    })
    t.match((await inject(app, '/tasks/one/redeliver', '{')).json(), { status: 400 })
    t.equal((await app.inject({ method: 'POST', url: '/tasks/none/redeliver' })).statusCode, 404)
    t.match(audits.slice(0, 1), [{ who: 'local', what: 'task.delete', target: 'one' }])
  }
)

t.test('everything that is wrong with a task is told at once, each with its place', async t => {
  const { app } = await api(t)
  const wrong = { ...order, sceneType: 7, retryTimes: 0, colour: 'red' }
  const answer = await inject(app, '/tasks', wrong)
  t.equal(answer.statusCode, 422)
  const { errors, pointer } = answer.json<{
    errors: { detail: string; pointer: string }[]
    pointer: string
  }>()
  t.same(errors.map(one => one.pointer).toSorted(), ['/colour', '/retryTimes', '/sceneType'])
  t.equal(pointer, errors[0]?.pointer, 'the first of them as before')
  const one = await inject(app, '/tasks', { ...order, retryTimes: 0 })
  t.notOk('errors' in one.json<object>(), 'a single one needs no list')
})

t.test('a messageCode that is misspelt is told what was meant', async t => {
  const { app } = await api(t)
  t.match((await inject(app, '/tasks', { ...order, messageCode: 'order.piad' })).json(), {
    code: 'UNKNOWN_CODE',
    detail: 'order.piad. Did you mean order.paid?'
  })
})

t.test('a messageCode that is like no other is answered with those that the key may use', async t => {
  const { app } = await api(t)
  t.match((await inject(app, '/tasks', { ...order, messageCode: 'nobody.knows' })).json(), {
    code: 'UNKNOWN_CODE',
    detail: /^nobody\.knows\. Known: .*order\.paid/
  })
})

t.test('each task of a batch has its own answer, in its place', async t => {
  const { app } = await api(t)
  await inject(app, '/tasks', { ...order, taskNo: 'known' })
  const body = 'x'.repeat(262_143)
  const answer = await inject(app, '/tasks/batch', {
    tasks: [
      { ...order, taskNo: 'one' },
      { ...order, taskNo: 'one' },
      { ...order, taskNo: 'one', messageBody: 2 },
      { ...order, taskNo: 'known' },
      { ...order, taskNo: 'a b' },
      7,
      { ...order, messageCode: 'nobody.knows', taskNo: 'two' },
      { ...order, taskNo: 'big', messageBody: body },
      order,
      { ...order, taskNo: 'late', deliverBefore: '2020-01-01T00:00:00Z' }
    ]
  })
  t.equal(answer.statusCode, 200)
  t.match(
    answer.json<{ results: unknown }>().results,
    only(
      { taskNo: 'one', status: 201, task: { status: 'SENDING' } },
      { taskNo: 'one', status: 200 },
      { taskNo: 'one', status: 409, code: 'TASK_CONFLICT', pointer: '/tasks/2/taskNo' },
      { taskNo: 'known', status: 200 },
      { status: 422, code: 'INVALID', pointer: '/tasks/4/taskNo' },
      { status: 422, code: 'INVALID', pointer: '/tasks/5' },
      { taskNo: 'two', status: 422, code: 'UNKNOWN_CODE', pointer: '/tasks/6/messageCode' },
      { taskNo: 'big', status: 413, code: 'BODY_TOO_LARGE' },
      { taskNo: /^order\.paid::/, status: 201 },
      { taskNo: 'late', status: 422, pointer: '/tasks/9/deliverBefore' }
    )
  )
})

t.test('a batch is a list of at most 1,000 tasks and keeps the text of each body', async t => {
  const { app, asked } = await api(t)
  const tasks = (n: number) => Array.from({ length: n }, (_, i) => ({ ...order, taskNo: `t${i}` }))
  const full = await inject(app, '/tasks/batch', { tasks: tasks(1_000) })
  t.equal(full.json<{ results: unknown[] }>().results.length, 1_000)
  t.match((await inject(app, '/tasks/batch', { tasks: tasks(1_001) })).json(), {
    status: 422,
    pointer: '/tasks'
  })
  t.match((await inject(app, '/tasks/batch', { tasks: [] })).json(), { results: { length: 0 } })
  for (const bad of [{}, [], { tasks: 1 }, { tasks: [], more: 1 }, null])
    t.equal((await inject(app, '/tasks/batch', JSON.stringify(bad))).statusCode, 422)
  await inject(
    app,
    '/tasks/batch',
    '{"tasks":[{"taskNo":"x1","messageCode":"order.paid","messageBody":1.0},{"taskNo":"x2","messageCode":"order.paid","messageBody": "\u20ac"}]}'
  )
  t.match(asked.slice(-2), [{ messageBody: '1.0' }, { messageBody: '"\u20ac"' }])
})

t.test(
  'a task that fails alone is answered 500 in its place; a batch without another answer as a whole',
  async t => {
    const batches: TaskRequest[][] = []
    const { app, bugs, deps } = await api(t, {
      async acceptMany(requests) {
        batches.push(requests)
        return requests.map(({ taskNo }) => (taskNo === 'poison' ? { kind: 'failed' } : { kind: 'conflict' }))
      }
    })
    const post = (...taskNos: string[]) =>
      inject(app, '/tasks/batch', { tasks: taskNos.map(taskNo => ({ ...order, taskNo })) })
    const mixed = await post('one', 'poison', 'no. 1')
    t.equal(mixed.statusCode, 200)
    t.match(mixed.json(), {
      results: only(
        { taskNo: 'one', status: 409, code: 'TASK_CONFLICT' },
        { taskNo: 'poison', status: 500, code: 'INTERNAL', title: /bug/ },
        { status: 422, code: 'INVALID' }
      )
    })
    t.equal(bugs.length, 0, 'the one who accepts logs it')
    t.notMatch(await deps.metrics.render(), /kind="refused"[^\n]* 2\n/)
    t.match((await post('poison', 'no. 1')).json(), { results: only({ status: 500 }, { status: 422 }) })
    t.match((await post('poison')).json(), { status: 500, code: 'INTERNAL' })
    t.equal(bugs.splice(0).length, 1)
    t.equal((await post()).statusCode, 200)
  }
)

t.test('a task of a batch that another process has to take is answered 503 in its place', async t => {
  const { app, bugs } = await api(t, {
    acceptMany: async requests =>
      requests.map(({ taskNo }) => ({
        kind: taskNo === 'one' ? 'elsewhere' : taskNo === 'two' ? 'after_elsewhere' : 'conflict'
      }))
  })
  const post = (...taskNos: string[]) =>
    inject(app, '/tasks/batch', { tasks: taskNos.map(taskNo => ({ ...order, taskNo })) })
  const mixed = await post('one', 'two', 'three')
  t.equal(mixed.statusCode, 200)
  t.equal(mixed.headers.connection, 'close', 'the next request may reach the other process')
  t.match(mixed.json(), {
    results: only(
      { taskNo: 'one', status: 503, code: 'UNAVAILABLE', detail: /another process has the handler/ },
      { taskNo: 'two', status: 503, code: 'UNAVAILABLE', detail: /a task before it/ },
      { taskNo: 'three', status: 409 }
    )
  })
  t.match((await post('one')).json(), { results: only({ status: 503 }) })
  t.not((await post('three')).headers.connection, 'close')
  t.equal(bugs.length, 0)
})

t.test('when the database is away the answer is 503 with a time, and never a bug', async t => {
  const away = async () => {
    throw new Unavailable('the database cannot be reached', 3, {
      cause: new Error('connection refused at 10.1.2.3')
    })
  }
  const { app, post, bugs } = await api(t, {
    accept: away,
    acceptMany: away,
    readTask: away,
    listTasks: away,
    receive: away
  })
  for (const answer of [
    await post(order),
    await inject(app, '/tasks/batch', { tasks: [order] }),
    await app.inject('/tasks/x'),
    await app.inject('/tasks')
  ]) {
    t.match(
      { body: answer.json(), retry: answer.headers['retry-after'] },
      {
        body: { status: 503, code: 'UNAVAILABLE', detail: 'the database cannot be reached' },
        retry: '3'
      }
    )
    t.notMatch(answer.body, /10\.1\.2\.3/, 'how it failed is for the log')
  }
  t.equal(bugs.length, 0)
})

t.test('a bug of ours is a 500 that tells the caller nothing and the log everything', async t => {
  const { post, bugs } = await api(t, {
    accept: async () => {
      throw new TypeError('secret detail')
    }
  })
  const answer = await post(order)
  t.match(answer.json(), { status: 500, code: 'INTERNAL' })
  t.notMatch(answer.body, /secret/)
  t.match(bugs.splice(0), only({ err: TypeError }))
})

t.test('over its limits the service says 429 and when to come back', async t => {
  const { app, post } = await api(t, { isFull: () => true })
  for (const answer of [await post(order), await inject(app, '/tasks/batch', { tasks: [] })]) {
    t.match(
      { body: answer.json(), retry: answer.headers['retry-after'] },
      { body: { status: 429, code: 'OVERLOADED' }, retry: '1' }
    )
  }
  t.equal((await app.inject('/tasks')).statusCode, 200, 'reading goes on')
})
