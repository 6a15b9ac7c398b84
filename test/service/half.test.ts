// Half messages over whole processes: a crash around a commit, a rollback or a check loses nothing and guesses nothing.
// Takes long: npm run test:long.
import path from 'node:path'
import t, { type Test } from 'tap'
import { createKey, type Scope } from '../../src/db/api-keys.ts'
import { producer, type Producer } from '../support/halves.ts'
import { only } from '../support/only.ts'
import { call, settled, start, type Answer, type Process } from '../support/service.ts'
import { stage, type Stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

async function halfStage(t: Test, answer?: Producer['answer']): Promise<{ on: Stage; shop: Producer }> {
  const on = await stage(t)
  if (!on) throw new Error('no stage')
  const shop = await producer(t, answer)
  on.env['HANDLERS_DIR'] = path.resolve(import.meta.dirname, '../support/half')
  on.env['TEST_PRODUCER'] = shop.url
  on.env['EGRESS_ALLOW'] += `,${new URL(shop.url).host}`
  return { on, shop }
}

const prepare = ({ url }: Process, taskNo: string, more: object = {}): Promise<Answer> =>
  call(`${url}/tasks`, { taskNo, messageCode: 'test.half', messageBody: { n: 1 }, prepared: true, ...more })
const end = ({ url }: Process, taskNo: string, how: string): Promise<Answer> =>
  call(`${url}/tasks/${taskNo}/${how}`, undefined, 'POST')

t.test('a commit that died before its commit did nothing, and one that died after it delivers', async t => {
  for (const moment of ['accept.before_commit', 'accept.after_commit']) {
    const { on } = await halfStage(t)
    const one = await start(t, { ...on.env, FAILPOINTS: `${moment}=kill#1` })
    t.match(await prepare(one, 'half'), { status: 201, body: { status: 'PREPARED' } })
    await t.rejects(end(one, 'half', 'commit'), 'it dies of its own hand')
    await one.exited
    const two = await start(t, on.env)
    const { body } = await call(`${two.url}/tasks/half`)
    t.equal(
      body?.['status'] === 'PREPARED',
      moment === 'accept.before_commit',
      `${moment}: ${String(body?.['status'])}`
    )
    if (moment === 'accept.before_commit') t.equal(on.downstream.requests.length, 0)
    t.match(await end(two, 'half', 'commit'), { status: 200 }, 'said again')
    t.match(await settled(two.url, 'half'), { body: { status: 'HANDLED' } })
    t.equal(on.downstream.count('half'), 1, 'once')
    t.match(await end(two, 'half', 'rollback'), { status: 409, body: { code: 'TASK_COMMITTED' } })
  }
})

t.test(
  'a process that dies with the answer of a producer in hand leaves it to another to ask again',
  async t => {
    const ends = { COMMITTED: 'HANDLED', ROLLED_BACK: 'CANCELLED' } as const
    for (const answer of ['COMMITTED', 'ROLLED_BACK'] as const) {
      const { on, shop } = await halfStage(t, () => answer)
      const one = await start(t, { ...on.env, FAILPOINTS: 'check.after_answer=kill#1' })
      t.equal((await prepare(one, 'half', { checkBack: { after: '1s' } })).status, 201)
      t.match(await one.exited, { signal: 'SIGKILL' })
      t.equal(shop.checks.length, 1)
      const two = await start(t, on.env)
      t.match(await settled(two.url, 'half', 60), { body: { status: ends[answer] } })
      t.match(await call(`${two.url}/tasks/half`), { body: { prepared: { endedBy: 'check:2', checks: 2 } } })
      t.equal(on.downstream.count('half'), answer === 'COMMITTED' ? 1 : 0)
      t.equal((await two.kill('SIGTERM')).code, 0)
    }
  }
)

t.test(
  'with roles apart the API commits, the dispatcher asks, and a stop waits for an answer that is under way',
  async t => {
    let reply = (): void => {}
    const held = new Promise<'COMMITTED'>(resolve => {
      reply = () => resolve('COMMITTED')
    })
    const { on, shop } = await halfStage(t, () => held)
    const api = await start(t, { ...on.env, ROLE: 'api' })
    const worker = await start(t, { ...on.env, ROLE: 'worker' })
    const dispatcher = await start(t, { ...on.env, ROLE: 'dispatcher' })
    t.equal((await prepare(api, 'said')).status, 201)
    t.equal((await end(api, 'said', 'commit')).status, 200)
    t.match(await settled(api.url, 'said'), { body: { status: 'HANDLED' } })
    t.equal((await prepare(api, 'asked', { checkBack: { after: '1s' } })).status, 201)
    await shop.checked(1)
    const stopped = dispatcher.kill('SIGTERM')
    await until('it drains', async () => {
      const { body } = await call(`${dispatcher.url}/readyz`)
      return (body?.['checks'] as { draining?: string } | undefined)?.draining === 'yes'
    })
    reply()
    t.match(await stopped, { code: 0, signal: null })
    t.match(
      await call(`${api.url}/tasks/asked`),
      { body: { prepared: { endedBy: 'check:1' } } },
      'it was written'
    )
    const other = await start(t, { ...on.env, ROLE: 'dispatcher' })
    t.match(await settled(api.url, 'asked'), { body: { status: 'HANDLED' } })
    t.match(await call(`${other.url}/readyz`), { status: 200 })
    t.equal((await worker.kill('SIGTERM')).code, 0)
  }
)

t.test('who waits, lists and stops sees a half message for what it is', async t => {
  const { on, shop } = await halfStage(t, () => 'UNKNOWN')
  const one = await start(t, on.env)
  t.match(
    await call(`${one.url}/tasks/batch`, {
      tasks: [
        { taskNo: 'a', messageCode: 'test.half', messageBody: { n: 1 }, prepared: true },
        {
          taskNo: 'b',
          messageCode: 'test.half',
          messageBody: { n: 2 },
          prepared: true,
          checkBack: { after: '1h' }
        },
        { taskNo: 'c', messageCode: 'test.half', messageBody: { n: 3 } },
        { taskNo: 'd', messageCode: 'test.half', messageBody: { n: 'no' }, prepared: true }
      ]
    }),
    {
      status: 200,
      body: {
        results: only(
          { taskNo: 'a', status: 201, task: { status: 'PREPARED', deliveries: { length: 0 } } },
          { taskNo: 'b', status: 201, task: { status: 'PREPARED' } },
          { taskNo: 'c', status: 201, task: { status: 'SENDING' } },
          { taskNo: 'd', status: 422, pointer: '/tasks/3/messageBody/n' }
        )
      }
    }
  )
  const listed = async (status: string) => {
    const { body } = await call(`${one.url}/tasks?status=${status}`)
    return ((body?.['tasks'] ?? []) as { taskNo: string }[]).map(task => task.taskNo)
  }
  t.same(await listed('PREPARED'), ['b', 'a'])
  t.match(await call(`${one.url}/tasks/a?wait=HANDLED&timeout=1`), {
    status: 200,
    body: { status: 'PREPARED' }
  })
  t.match(await call(`${one.url}/tasks/a`, undefined, 'DELETE'), {
    status: 409,
    body: { code: 'TASK_PREPARED' }
  })
  t.match(await end(one, 'a', 'redeliver'), { status: 409, body: { code: 'TASK_PREPARED' } })
  t.match(await end(one, 'a', 'check'), {
    status: 200,
    body: { status: 'PREPARED', prepared: { lastAnswer: 'UNKNOWN' } }
  })
  t.match(shop.checks, only({ taskNo: 'a' }))
  t.same(await listed('PREPARED&checked=true'), ['a'])
  t.same(await listed('PREPARED&checked=false'), ['b'])
  t.match(await call(`${one.url}/tasks?checked=true`), { status: 422, body: { pointer: '?/checked' } })
  const waiting = call(`${one.url}/tasks/a?wait=HANDLED&timeout=60`)
  t.match(await end(one, 'a', 'rollback'), {
    status: 200,
    body: { status: 'CANCELLED', deliveries: { length: 0 } }
  })
  t.match(await waiting, { status: 200, body: { status: 'CANCELLED' } })
  t.match(await end(one, 'a', 'commit'), {
    status: 409,
    body: { code: 'TASK_ROLLED_BACK', detail: 'its status is CANCELLED' }
  })
  t.same(await listed('CANCELLED'), ['a'])
  t.match(await end(one, 'c', 'commit'), { status: 409, body: { code: 'NOT_PREPARED' } })
  t.match(await end(one, 'none', 'commit'), { status: 404, body: { code: 'TASK_NOT_FOUND' } })
  t.match(await prepare(one, 'a'), { status: 200, body: { status: 'CANCELLED' } }, 'posted again')
  t.match(
    await prepare(one, 'b'),
    { status: 409, body: { code: 'TASK_CONFLICT' } },
    'its checkBack is its content'
  )
  await until('a dispatcher has counted them', async () => {
    const metrics = await (await fetch(`${one.url}/metrics`)).text()
    return /^ackbox_prepared_tasks [12]$/m.test(metrics)
  })
})

t.test(
  'a key of other message codes finds no half message of theirs; a hand of somebody else leaves its row',
  async t => {
    const { on } = await halfStage(t)
    const one = await start(t, { ...on.env, AUTH: 'on' })
    const keyOf = async (name: string, scopes: Scope[], messageCodes: string[] | null) =>
      (await createKey(on.sql, { name, scopes, messageCodes, who: { name: 'test' } })).key
    const shop = await keyOf('shop', ['tasks:write', 'tasks:read'], ['test.half'])
    const other = await keyOf('other', ['tasks:write', 'tasks:read', 'ops:write'], ['test.plain'])
    const person = await keyOf('person', ['ops:write'], null)
    const as = async (key: string, how: string, taskNo: string, body?: object) => {
      const answer = await fetch(`${one.url}/tasks${taskNo === '' ? '' : `/${taskNo}/${how}`}`, {
        method: 'POST',
        headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
        ...(body && { body: JSON.stringify(body) })
      })
      return [answer.status, ((await answer.json()) as { status?: unknown; code?: unknown })['code'] ?? 'ok']
    }
    for (const n of [1, 2, 3]) {
      const task = { taskNo: `t${n}`, messageCode: 'test.half', messageBody: { n }, prepared: true }
      t.same(await as(shop, '', '', task), [201, 'ok'])
    }
    for (const how of ['commit', 'rollback', 'check'])
      t.same(await as(other, how, 't1'), [404, 'TASK_NOT_FOUND'], `${how} by a key of other codes`)
    t.same(await as(shop, 'commit', 't1'), [200, 'ok'])
    t.same(await as(person, 'check', 't2'), [200, 'ok'])
    t.same(await as(person, 'rollback', 't2'), [200, 'ok'])
    t.same(await as(person, 'commit', 't3'), [200, 'ok'])
    t.same(await as(person, 'commit', 't3'), [200, 'ok'], 'again')
    t.same(await as(person, 'rollback', 't3'), [409, 'TASK_COMMITTED'])
    const rows = await on.sql`select who, what, target from audit where what like 'task.%' order by id`
    t.same(
      rows.map(row => Object.values(row).join(' ')),
      ['person task.check t2', 'person task.rollback t2', 'person task.commit t3'],
      'whoever posted it needs no row: it stands beside the task'
    )
  }
)
