import t from 'tap'
import { api } from './fake.ts'
import { only } from '../support/only.ts'

t.test('a downstream is paused and resumed by name, and who did it is kept', async t => {
  const { app, audits } = await api(t)
  const post = async (url: string) => (await app.inject({ method: 'POST', url })).json<object>()
  t.match(await post('/downstreams/warehouse/pause'), { name: 'warehouse', paused: true })
  t.match((await app.inject('/downstreams')).json(), {
    downstreams: only({ name: 'warehouse', paused: true })
  })
  t.match(await post('/downstreams/warehouse/resume'), { paused: false })
  t.match(await post('/downstreams/nobody/pause'), { status: 404, code: 'DOWNSTREAM_NOT_FOUND' })
  t.same(audits, [
    { who: 'local', what: 'downstream.pause', target: 'warehouse' },
    { who: 'local', what: 'downstream.resume', target: 'warehouse' }
  ])
})

t.test('a call without a body refuses what somebody meant by one', async t => {
  const { app, audits } = await api(t)
  const pause = async (payload: string) =>
    app.inject({
      method: 'POST',
      url: '/downstreams/warehouse/pause',
      headers: { 'content-type': 'application/json' },
      payload
    })
  for (const payload of ['{"for":"1h"}', '[]', 'nonsense', '0']) {
    const refused = await pause(payload)
    t.match(refused.json(), {
      status: 422,
      code: 'INVALID',
      detail: 'this call takes no body',
      pointer: ''
    })
  }
  t.same(audits, [], 'nothing was paused')
  // An open route, so nobody needs a key for it. An expression with two parts for the same spaces would take minutes.
  const url = '/session'
  const headers = { 'content-type': 'application/json' }
  const slow = await app.inject({ method: 'DELETE', url, headers, payload: `${' '.repeat(290_000)}x` })
  t.match(slow.json(), { status: 422, detail: 'this call takes no body' })
  for (const payload of ['', '{}', ' { }\n']) t.equal((await pause(payload)).statusCode, 200, payload)
})

t.test('handlers are shown with the schema of their body and the limits of their downstreams', async t => {
  const { app } = await api(t)
  t.match((await app.inject('/handlers')).json(), {
    handlers: only({
      messageCode: 'order.paid',
      body: { type: 'object', required: only('orderId') },
      downstreams: only({ name: 'warehouse', times: 10, concurrency: 50, needCallback: false })
    })
  })
})

t.test('a dry run shows what would be sent, and takes only what POST /tasks would', async t => {
  const { app, asked } = await api(t)
  const run = async (code: string, payload: object) =>
    (await app.inject({ method: 'POST', url: `/handlers/${code}/dry-run`, payload })).json<object>()
  t.match(await run('order.paid', { taskNo: 'test-1', messageBody: { orderId: 'A-1' } }), {
    messageCode: 'order.paid',
    taskNo: 'test-1',
    downstreams: { length: 0 }
  })
  t.match(await run('order.piad', { messageBody: { orderId: 'A-1' } }), {
    code: 'UNKNOWN_CODE',
    detail: 'order.piad. Did you mean order.paid?'
  })
  t.match(await run('order.paid', { messageBody: null }), { code: 'INVALID', pointer: '/messageBody' })
  t.match(await run('order.paid', { messageBody: {}, delay: 5 }), { code: 'INVALID', pointer: '/delay' })
  t.equal(asked.length, 0, 'nothing was accepted')
})

t.test('deliveries and alarms are listed by what is asked for', async t => {
  const filters: object[] = []
  const { app } = await api(t, {
    listDeliveries: async filter => {
      filters.push(filter)
      return { deliveries: [] }
    },
    listAlarms: async filter => {
      filters.push(filter)
      return filter.cursor === 'nonsense' ? 'bad_cursor' : { alarms: [], nextCursor: 'x' }
    }
  })
  await app.inject('/deliveries?status=SENDING&phase=WAITING&reason=EXPIRED&downstream=warehouse')
  t.match((await app.inject('/alarms?kind=TLS&open=true')).json(), { alarms: { length: 0 }, nextCursor: 'x' })
  t.match(
    filters,
    only(
      { status: 'SENDING', phase: 'WAITING', reason: 'EXPIRED', downstream: 'warehouse' },
      { kind: 'TLS', open: true }
    )
  )
  await app.inject('/deliveries?fingerprint=0123456789abcdef')
  t.match(filters.at(-1), { fingerprint: '0123456789abcdef' })
  await app.inject('/alarms?notKind=FAILED')
  t.match(filters.at(-1), { notKind: 'FAILED' })
  t.match((await app.inject('/alarms?kind=FIRE')).json(), { status: 422, pointer: '?/kind' })
  t.match((await app.inject('/alarms?cursor=nonsense')).json(), { status: 422, pointer: '?/cursor' })
})

t.test('open alarms are listed whatever their age, others of the last day', async t => {
  const froms: string[] = []
  const { app } = await api(t, {
    listAlarms: async ({ from }) => {
      froms.push(from.toISOString())
      return { alarms: [] }
    }
  })
  // As the link at the end of each message.
  await app.inject('/alarms?open=true&kind=FAILED&downstream=warehouse')
  await app.inject('/alarms?open=true&from=2026-01-01T00:00:00Z')
  await app.inject('/alarms?open=false')
  const [all, since, day = ''] = froms
  t.equal(all, '1970-01-01T00:00:00.000Z')
  t.equal(since, '2026-01-01T00:00:00.000Z')
  t.ok(Date.parse(day) > Date.now() - 86_500_000, day)
})

t.test('what has not ended well is listed whatever its age, other tasks of the last day', async t => {
  const froms: string[] = []
  const keep = ({ from }: { from: Date }) => froms.push(from.toISOString())
  const { app } = await api(t, {
    listTasks: async filter => (keep(filter), { tasks: [] }),
    listDeliveries: async filter => (keep(filter), { deliveries: [] })
  })
  for (const all of [
    'tasks?status=FAILED',
    'tasks?status=SENDING',
    'tasks?status=PREPARED',
    'deliveries?phase=BLOCKED'
  ]) {
    t.equal((await app.inject(`/${all}`)).statusCode, 200)
    t.equal(froms.at(-1), '1970-01-01T00:00:00.000Z', all)
  }
  await app.inject('/deliveries?status=FAILED&from=2026-01-01T00:00:00Z')
  t.equal(froms.at(-1), '2026-01-01T00:00:00.000Z')
  for (const day of ['tasks', 'tasks?status=HANDLED', 'deliveries?status=HANDLED']) {
    await app.inject(`/${day}`)
    t.ok(Date.parse(froms.at(-1) ?? '') > Date.now() - 86_500_000, day)
  }
})

t.test('a time that PostgreSQL cannot read is refused, or asked for in another zone', async t => {
  const filters: object[] = []
  const { app } = await api(t, {
    countFailed: async ({ filter }) => {
      filters.push(filter)
      return { matched: 0, partial: false }
    }
  })
  for (const list of ['audit', 'stats', 'failures', 'tasks'])
    t.match((await app.inject(`/${list}?from=9999-12-31T23:59:59-23:59`)).json(), {
      status: 422,
      pointer: '?/from'
    })
  const filter = { from: '2026-11-25T00:00:00+16:00', to: '2026-11-26T00:00:00.1234-23:59' }
  await app.inject({ method: 'POST', url: '/tasks/redeliver', payload: { filter, dryRun: true } })
  t.same(filters, [{ from: '2026-11-24T08:00:00.000Z', to: '2026-11-26T23:59:00.124Z' }])
})

t.test(
  'a bulk redelivery of nothing refuses a name that nobody knows, and takes one of former failures',
  async t => {
    let counted = { matched: 0, partial: false }
    const { app } = await api(t, { countFailed: async () => counted })
    const redeliver = async (filter: object, more: object = {}) =>
      (await app.inject({ method: 'POST', url: '/tasks/redeliver', payload: { filter, ...more } })).json()
    const noDownstream = {
      code: 'DOWNSTREAM_NOT_FOUND',
      pointer: '/filter/downstream',
      detail: 'warehuose. Did you mean warehouse?'
    }
    t.match(await redeliver({ downstream: 'warehuose' }, { dryRun: true }), { status: 404, ...noDownstream })
    t.match(await redeliver({ downstream: 'warehuose' }), { status: 404, ...noDownstream })
    t.match(await redeliver({ messageCode: 'order.payd' }), {
      status: 422,
      code: 'UNKNOWN_CODE',
      pointer: '/filter/messageCode',
      detail: 'order.payd. Did you mean order.paid?'
    })
    t.match(await redeliver({ downstream: 'warehouse', messageCode: 'order.paid' }, { dryRun: true }), {
      matched: 0
    })
    for (counted of [
      { matched: 1, partial: false },
      { matched: 0, partial: true }
    ])
      t.match(await redeliver({ downstream: 'warehuose' }), { state: 'RUNNING' })
  }
)

t.test('a fingerprint of another form names no failure', async t => {
  const { app } = await api(t, {
    archiveFailure: async () => {
      throw new Error('PostgreSQL has no U+0000')
    }
  })
  const archive = { method: 'POST', url: '/failures/%00/archive', payload: { note: 'x' } } as const
  t.match((await app.inject(archive)).json(), { status: 404, code: 'FAILURE_NOT_FOUND' })
})

t.test('a query that a call would ignore is refused', async t => {
  const { app, asked, audits } = await api(t)
  const payload = { messageCode: 'order.paid', messageBody: { orderId: 'A-1' } }
  const refused = [
    ['POST', '/tasks?prepared=true', '?/prepared'],
    ['DELETE', '/tasks/m1?downstream=review', '?/downstream'],
    ['GET', '/handlers?q=x', '?/q'],
    ['GET', '/session?q=x', '?/q'],
    ['HEAD', '/nodes?q=x', undefined]
  ] as const
  for (const [method, url, pointer] of refused) {
    const answer = await app.inject({ method, url, ...(method === 'POST' ? { payload } : {}) })
    t.equal(answer.statusCode, 422, url)
    if (pointer !== undefined) t.match(answer.json(), { code: 'INVALID', pointer }, url)
  }
  t.same([asked, audits], [[], []], 'nothing was done')
  for (const url of ['/healthz?probe=1', '/readyz?probe=1', '/metrics?x=1', '/openapi.json?v=1'])
    t.equal((await app.inject(url)).statusCode, 200, url)
})

t.test('an act on a downstream that the task does not have names the mistake', async t => {
  const nothing = async () => 'nothing' as const
  const { app } = await api(t, { redeliver: nothing, push: nothing, settle: nothing })
  const post = async (url: string, payload: object) =>
    (await app.inject({ method: 'POST', url, payload })).json<object>()
  await post('/tasks', { taskNo: 'm1', messageCode: 'order.paid', messageBody: { orderId: 'A-1' } })
  const acts = [
    ['redeliver', {}],
    ['push', {}],
    ['settle', { status: 'HANDLED', reason: 'by hand' }]
  ] as const
  for (const [act, body] of acts) {
    t.match(
      await post(`/tasks/m1/${act}`, { ...body, downstream: 'warehose' }),
      { status: 404, code: 'DOWNSTREAM_NOT_FOUND', pointer: '/downstream' },
      act
    )
    t.match(await post(`/tasks/m1/${act}`, { ...body, downstream: 'warehouse' }), { status: 409 }, act)
    t.match(await post(`/tasks/m1/${act}`, body), { status: 409 }, act)
  }
  const settle = (from: object) => post('/tasks/m1/settle', { status: 'HANDLED', reason: 'by hand', from })
  t.match(await settle({ warehose: 'FAILED' }), { status: 404, pointer: '/from/warehose' })
  t.match(await settle({ warehouse: 'FAILED' }), { status: 409, code: 'NOTHING_TO_SETTLE' })
  t.match(await settle({ warehouse: 'HANDLED' }), { status: 422, pointer: '/from/warehouse' })
})

t.test('a query is refused in words that say what to change', async t => {
  const { app } = await api(t)
  const detail = async (url: string) => (await app.inject(url)).json<{ detail: string }>().detail
  t.equal(await detail('/tasks?limit=99999999'), 'must be from 1 to 200')
  t.equal(await detail('/tasks?limit=0'), 'must be from 1 to 200')
  t.equal(await detail('/tasks?limit=1e2'), 'must be a whole number')
  t.equal(await detail('/tasks?from=1969-12-31T23:59:59Z'), 'must be in 1970 to 9999')
  t.equal((await app.inject('/tasks?from=2026-11-20T10:00:00+08:00')).statusCode, 200, 'without %2B')
  t.match(await detail('/tasks?from=2026-02-30T00:00:00Z'), /^must be an RFC 3339 time/)
  const span = 'from=2026-11-25T00:00:00Z&to=2026-11-25T00:00:00Z'
  for (const list of ['tasks', 'deliveries', 'alarms', 'audit', 'stats', 'failures'])
    t.match((await app.inject(`/${list}?${span}`)).json(), {
      status: 422,
      detail: 'must be after from',
      pointer: '?/to'
    })
  const filter = { from: '2026-11-25T00:00:00Z', to: '2026-11-24T00:00:00Z' }
  const all = { method: 'POST', url: '/tasks/redeliver', payload: { filter } } as const
  t.match((await app.inject(all)).json(), { status: 422, pointer: '/filter/to' })
})

t.test('a process that cannot take work says so, and still says that it lives', async t => {
  const { app } = await api(t, { ready: async () => ({ ok: false, checks: { postgres: 'away' } }) })
  const ready = await app.inject('/readyz')
  t.match(
    { status: ready.statusCode, body: ready.json() },
    { status: 503, body: { status: 'not ready', checks: { postgres: 'away' } } }
  )
  t.equal((await app.inject('/healthz')).statusCode, 200)
})

t.test('metrics are given as Prometheus reads them', async t => {
  const { app } = await api(t)
  const answer = await app.inject('/metrics')
  t.match(answer, {
    statusCode: 200,
    headers: { 'content-type': /text\/plain; version=0\.0\.4/ },
    body: /ackbox_accepts_total/
  })
})
