import t from 'tap'
import type { OnReceipt } from '../../src/handler/define.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { Task } from '../../src/domain/types.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { taskRequest } from '../support/task-request.ts'
import { weirdNames, weirdValues } from '../support/weird-values.ts'
import { setup, type SetupOptions } from '../support/setup.ts'

const owing: SetupOptions = { downstream: { needCallback: true } }

t.test('the hook gets the task it acknowledges and not an empty record, and may turn HANDLED', async t => {
  let said: OnReceipt | 'throw' | 'nonsense'
  let told: { task: Readonly<Task>; body: unknown; receipt: object } | undefined
  const { post, receive, quiet, delivery } = await setup(t, {
    ...owing,
    handler: {
      onReceipt(about) {
        told = about
        if (said === 'throw') throw new Error('oh')
        return said as OnReceipt
      }
    }
  })
  const cases = [
    [undefined, 'HANDLED'],
    ['HANDLED', 'HANDLED'],
    ['FAILED', 'FAILED'],
    ['RETRY', 'SENDING'],
    ['throw', 'SENDING'],
    ['nonsense', 'SENDING']
  ] as const
  for (const [turn, status] of cases) {
    said = turn
    const one = taskRequest({ messageBody: `{"turn":"${turn}"}`, sceneType: 'vip' })
    await post(one)
    await quiet()
    t.match(
      await receive({ taskNo: one.taskNo, data: '{"code":7}' }),
      { status, applied: true },
      String(turn)
    )
    t.match(told, {
      task: { taskNo: one.taskNo, messageBody: one.messageBody, sceneType: 'vip' },
      body: { turn: String(turn) },
      receipt: { result: 'HANDLED', data: { code: 7 }, downstream: 'warehouse', attempt: 1 }
    })
    const expected = status === 'SENDING' ? 'RETRY' : status
    t.match(await delivery(one.taskNo), { status, receipts: only({ result: expected, data: '{"code":7}' }) })
  }
})

t.test('whatever the hook throws or returns, the receipt is recorded', async t => {
  let hook: () => unknown = () => undefined
  const { post, receive, quiet, delivery } = await setup(t, {
    ...owing,
    handler: { onReceipt: () => hook() as never }
  })
  const hooks = weirdNames.flatMap(name => [
    () => {
      throw weirdValues[name]()
    },
    () => weirdValues[name](),
    () => ({ result: weirdValues[name]() }),
    () => ({ extend: weirdValues[name]() })
  ])
  for (const one of hooks) {
    hook = one
    const taskNo = await post()
    await quiet()
    t.match(await receive({ taskNo }), { applied: true }, String(one))
    t.match(await delivery(taskNo), { receipts: only({ result: /HANDLED|RETRY/ }) })
  }
})

/** The statements of a client that read bodies. */
function counting(whole: Sql) {
  const counted = { reads: 0 }
  const apply = (target: Sql, self: unknown, args: [TemplateStringsArray, ...unknown[]]): unknown => {
    if (/[.,] ?message_body/.test([args[0]].flat().join(''))) counted.reads++
    return Reflect.apply(target, self, args)
  }
  return { counted, sql: new Proxy(whole, { apply }) }
}

t.test(
  'a receipt reads the body of its task only for a hook, and a flood of equal ones not for each',
  async t => {
    const { sql, counted } = counting((await testDb(t)).sql)
    const without = await setup(t, { ...owing, sql })
    const one = await without.post()
    await without.quiet()
    counted.reads = 0
    await Promise.all(Array.from({ length: 50 }, () => without.receive({ taskNo: one })))
    t.equal(counted.reads, 0)

    let told = 0
    const heard = await setup(t, {
      ...owing,
      sql,
      handler: {
        onReceipt({ body }) {
          if (body) told++
        }
      }
    })
    const other = await heard.post()
    await heard.quiet()
    counted.reads = 0
    await Promise.all(
      Array.from({ length: 50 }, () => heard.receive({ taskNo: other, result: 'PROCESSING' }))
    )
    t.equal(told, 50)
    t.ok(counted.reads <= 5, `${counted.reads} reads`)
  }
)

t.test('an onReceipt that hangs is a RETRY after 5 s', async t => {
  const { post, receive, quiet } = await setup(t, {
    ...owing,
    handler: { onReceipt: () => new Promise(() => {}) }
  })
  const taskNo = await post()
  await quiet()
  t.match(await receive({ taskNo }), { status: 'SENDING', applied: true })
})

t.test(
  'the hook does not hear of a receipt that its delivery no longer takes, and it sets no extend',
  async t => {
    const told: unknown[] = []
    const { post, receive, redeliver, dispatch, quiet, downstream, read } = await setup(t, {
      ...owing,
      handler: {
        onReceipt({ receipt }) {
          told.push(receipt.data)
          return { extend: { from: receipt.data } }
        }
      }
    })
    const taskNo = await post()
    await quiet()
    const first = downstream.requests[0]?.token ?? ''
    t.match(await receive({ taskNo, result: 'FAILED', data: '"refused"' }), { applied: true })
    for (const result of ['FAILED', 'RETRY', 'PROCESSING'] as const)
      t.match(await receive({ taskNo, result, data: '"repeated"' }), { applied: false, status: 'FAILED' })
    await redeliver(taskNo)
    await dispatch()
    t.equal(downstream.requests.length, 2)
    for (const result of ['HANDLED', 'FAILED', 'RETRY', 'PROCESSING'] as const)
      t.match(await receive({ taskNo, result, token: first, data: '"of the round before"' }), {
        applied: false,
        status: 'SENDING'
      })
    t.same(told, ['refused'])
    t.same((await read(taskNo)).extend, { from: 'refused' })
    t.match(await receive({ taskNo, data: '"done"' }), { applied: true, status: 'HANDLED' })
    t.same(told, ['refused', 'done'])
    t.same((await read(taskNo)).extend, { from: 'done' })
  }
)

t.test('the hook hears of PROCESSING also before the outcome of its attempt is written', async t => {
  const { post, receive, downstream, read, quiet } = await setup(t, {
    ...owing,
    handler: { onReceipt: ({ receipt }) => ({ extend: { by: receipt.data } }) }
  })
  downstream.holds = true
  const taskNo = await post()
  await downstream.received(1)
  t.match(await receive({ taskNo, result: 'PROCESSING', data: '"line 4"' }), { applied: false })
  t.same((await read(taskNo)).extend, { by: 'line 4' })
  downstream.answer()
  await quiet()
})
