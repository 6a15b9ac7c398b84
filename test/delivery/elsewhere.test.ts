// Processes of one installation with different handlers, as in a rolling deploy: what one has no handler for, another one takes.
import t, { type Test } from 'tap'
import { writeNode } from '../../src/db/cluster.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { TaskRequest } from '../../src/delivery/accept.ts'
import { receiptCheck } from '../../src/delivery/handlers-elsewhere.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { keepNodes } from '../support/rows.ts'
import { setup, type SetupOptions, type Story } from '../support/setup.ts'
import { taskRequest } from '../support/task-request.ts'
import { until } from '../support/until.ts'

interface Deploy {
  sql: Sql
  old: Story
  young: Story
  /** How often the old process has asked what others have a handler for. */
  questions: () => number
}

/** An old process without a handler for `stock.changed`, and a new one with it, on one database. */
async function deploy(t: Test, options: SetupOptions = {}): Promise<Deploy> {
  const { sql } = await testDb(t, { max: 8 })
  const asked = counting(sql, 'unnest(handles)')
  const old = await setup(t, { ...options, sql: asked.sql })
  const young = await setup(t, { ...options, sql })
  const [known] = young.handlers.values()
  if (known) young.handlers.set('stock.changed', { ...known, messageCode: 'stock.changed' })
  return { sql, old, young, questions: asked.count }
}

/** A client that counts its statements with this text. */
function counting(sql: Sql, text: string): { sql: Sql; count: () => number } {
  let seen = 0
  const apply = (target: Sql, self: unknown, given: [readonly string[]]): unknown => {
    if ([given[0]].flat().join('').includes(text)) seen++
    return Reflect.apply(target as never, self, given)
  }
  return { sql: new Proxy(sql, { apply }), count: () => seen }
}

/** By then the last answer of `questions` is not used any more. `ask` uses it. */
async function askedAgain(questions: () => number, ask: () => Promise<unknown>): Promise<void> {
  const before = questions()
  await until('it asks again', async () => {
    await ask()
    return questions() > before
  })
}

/** The new process lives, in these roles. */
async function join(sql: Sql, roles = 'api,worker,dispatcher'): Promise<void> {
  await writeNode(sql, {
    id: 'young',
    roles,
    version: 'test',
    handles: ['order.paid warehouse', 'stock.changed warehouse']
  })
  await keepNodes(sql)
}

const die = (sql: Sql) => sql`update node set seen_at = now() - interval '16 s' where id = 'young'`

const enqueue = (sql: Sql, messageCode: string, taskNo: string, orderingKey: string | null = null) =>
  sql`select ackbox_api.enqueue(${messageCode}, '1', ${taskNo}, ordering_key => ${orderingKey})`

const taskNos = async (sql: Sql): Promise<string[]> =>
  (await sql<{ task_no: string }[]>`select task_no from task order by id`).map(row => row.task_no)

const rejected = async (sql: Sql): Promise<string[]> =>
  (await sql<{ task_no: string }[]>`select task_no from outbox_rejected order by id`).map(row => row.task_no)

const stock = (more: Partial<TaskRequest> = {}) => taskRequest({ messageCode: 'stock.changed', ...more })

t.test('rows that another dispatcher has the handler of stay for it, and no others do', async t => {
  const { sql, old, young } = await deploy(t)
  await join(sql)
  await sql`select ackbox_api.enqueue('stock.changed', '1', 'stock-' || i) from generate_series(1, 250) i`
  await enqueue(sql, 'stock.changed', 'k-1', 'k')
  await enqueue(sql, 'order.paid', 'k-2', 'k')
  await enqueue(sql, 'order.paid', 'free')
  const reads = counting(sql, 'pg_snapshot_xmin')
  const stop = new AbortController()
  t.teardown(() => stop.abort())
  const running = [old.outboxOfAnother({ node: 'old', sql: reads.sql }).run(stop.signal)]
  await until('the one behind them is stored', async () => (await taskNos(sql)).length > 0)
  t.same(await taskNos(sql), ['free'])
  await until('the shard of the key is free', async () => (await sql`select from outbox_lease`).length === 0)
  const [from, before] = [performance.now(), reads.count()]
  await until('it has looked six times', () => reads.count() > before + 5)
  t.ok(performance.now() - from > 1_000, `${performance.now() - from} ms for six looks`)
  running.push(young.outboxOfAnother({ node: 'young' }).run(stop.signal))
  await until('the other one takes them', async () => (await taskNos(sql)).length === 253)
  const keyed = (await taskNos(sql)).filter(taskNo => taskNo.startsWith('k-'))
  t.same(keyed, ['k-1', 'k-2'], 'in their order')
  stop.abort()
  await Promise.all(running)
  t.same(await rejected(sql), [])
})

t.test('rows that no live dispatcher has the handler of are rejected', async t => {
  const { sql, old } = await deploy(t)
  await join(sql, 'api,worker')
  await enqueue(sql, 'stock.changed', 'of-another-role')
  await old.acceptRows()
  t.same(await rejected(sql), ['of-another-role'])
  await join(sql)
  await enqueue(sql, 'stock.changed', 'of-the-dead')
  await enqueue(sql, 'order.piad', 'of-nobody')
  await old.acceptRows()
  t.same(await rejected(sql), ['of-another-role', 'of-nobody'])
  await die(sql)
  await old.acceptRows()
  t.same(await rejected(sql), ['of-another-role', 'of-nobody', 'of-the-dead'])
})

t.test('a task that another process has the handler of is to be posted again', async t => {
  const { sql, old, young, questions } = await deploy(t)
  const one = stock()
  const answer = (): Promise<unknown> => old.accept(one).catch((err: unknown) => err)
  t.match(await answer(), { kind: 'unknown_code' })
  await join(sql, 'worker,dispatcher')
  await askedAgain(questions, answer)
  t.match(await answer(), { kind: 'unknown_code' }, 'a process without an API takes no POST')
  await join(sql)
  await askedAgain(questions, answer)
  const message = 'another process has the handler of this messageCode: send it again'
  t.match(await answer(), { name: 'Unavailable', message, retryAfterS: 1 })
  t.match(await young.accept(one), { kind: 'created' })
  await die(sql)
  await askedAgain(questions, answer)
  t.match(await answer(), { kind: 'unknown_code' })
  const before = questions()
  await Promise.all(
    Array.from({ length: 300 }, (_, n) => old.accept(taskRequest({ messageCode: `nobody.${n}` })))
  )
  t.ok(questions() - before <= 1, 'a flood of unknown codes asks once')
})

t.test('in a batch what must come after such a task is to be posted again too', async t => {
  const { sql, old } = await deploy(t)
  await join(sql)
  const answers = await old.accept.many([
    taskRequest({ orderingKey: 'k' }),
    stock({ orderingKey: 'k' }),
    stock({ taskNo: 'stock-2' }),
    taskRequest({ orderingKey: 'k' }),
    taskRequest({ taskNo: 'waits', after: { taskNos: ['stock-2'], codes: null } }),
    taskRequest({ after: { taskNos: ['waits'], codes: null } }),
    taskRequest({ taskNo: 'stock-2' }),
    taskRequest({ messageCode: 'nobody' }),
    taskRequest({ orderingKey: 'another' })
  ])
  t.same(
    answers.map(({ kind }) => kind),
    [
      'created',
      'elsewhere',
      'elsewhere',
      'after_elsewhere',
      'after_elsewhere',
      'after_elsewhere',
      'after_elsewhere',
      'unknown_code',
      'created'
    ]
  )
})

t.test('a receipt waits for a process with its handler, whose hook decides', async t => {
  const { sql, old, young, questions } = await deploy(t, {
    downstream: { needCallback: true },
    handler: { onReceipt: () => 'FAILED' }
  })
  await join(sql)
  const post = async (messageCode: string) => {
    const taskNo = await young.post({ messageCode })
    await young.quiet()
    return { taskNo, messageCode, token: young.downstream.requests.at(-1)?.token }
  }
  const one = await post('stock.changed')
  for (const result of ['HANDLED', 'FAILED'] as const)
    await t.rejects(old.receive({ ...one, result }), {
      name: 'Unavailable',
      message: /another process has the handler/
    })
  t.match(await young.delivery(one.taskNo), { status: 'SENDING', receipts: { length: 0 } })
  t.match(await old.receive({ ...(await post('order.paid')) }), { status: 'FAILED' }, 'by its own hook')
  t.match(await young.receive(one), { status: 'FAILED', applied: true })
  t.match(await old.receive({ ...one, result: 'RETRY' }), { applied: false }, 'which changes nothing')

  const rest: Awaited<ReturnType<typeof post>>[] = []
  for (let n = 0; n < 11; n++) rest.push(await post('stock.changed'))
  await die(sql)
  const unknown = () => old.accept(stock()).catch(() => {})
  await askedAgain(questions, unknown)
  for (const two of rest) t.match(await old.receive(two), { status: 'HANDLED', applied: true })
  t.match(
    old.logged('receipt.no_handler'),
    only(
      { level: 'warn', taskNo: rest[0]?.taskNo, downstream: 'warehouse', messageCode: 'stock.changed' },
      { taskNo: rest[9]?.taskNo }
    ),
    'the first and the tenth are told'
  )
})

t.test('a receipt from a queue does not wait for ever: it would keep those behind it', async t => {
  const { sql, old, young } = await deploy(t, {
    downstream: { needCallback: true },
    handler: { onReceipt: () => 'FAILED' },
    queuedWaitMs: 0
  })
  await join(sql)
  const taskNo = await young.post({ messageCode: 'stock.changed' })
  await young.quiet()
  const one = { taskNo, messageCode: 'stock.changed', token: young.downstream.requests.at(-1)?.token }
  await t.rejects(old.receive(one), { name: 'Unavailable' })
  t.match(await old.receive({ ...one, isQueued: true }), { status: 'HANDLED', applied: true })
  t.match(old.logged('receipt.no_handler'), only({ taskNo }))
})

t.test('the minute of a queue counts from its own first receipt, and anew after a pause', async t => {
  let now = 0
  const check = receiptCheck({
    handlersElsewhere: async () => new Set(['stock.changed']),
    log: { debug() {}, info() {}, warn() {}, error() {} },
    now: () => now
  })
  const take = (isQueued: boolean) =>
    check({ isQueued }, { taskNo: 'a', messageCode: 'stock.changed', downstream: 'warehouse' })
  await t.rejects(take(false), { name: 'Unavailable' }, 'over HTTP')
  now += 3_600_000
  for (let s = 0; s < 60; s++, now += 1_000) await t.rejects(take(true), { name: 'Unavailable' }, `${s} s`)
  await take(true)
  now += 3_600_000
  await t.rejects(take(true), { name: 'Unavailable' }, 'in the next deploy')
})
