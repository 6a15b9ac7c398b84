// Processes of one installation with different handlers, as in a rolling deploy: what one has no handler for, another one takes.
import t, { type Test } from 'tap'
import { writeNode } from '../../src/db/cluster.ts'
import type { Sql } from '../../src/db/pool.ts'
import { testDb } from '../support/postgres.ts'
import { setup, type SetupOptions, type Story } from '../support/setup.ts'
import { until } from '../support/until.ts'

/** An old process without a handler for `stock.changed`, and a new one with it, on one database. */
async function deploy(t: Test, options: SetupOptions = {}): Promise<{ sql: Sql; old: Story; young: Story }> {
  const { sql } = await testDb(t, { max: 8 })
  const old = await setup(t, { ...options, sql })
  const young = await setup(t, { ...options, sql })
  const [known] = young.handlers.values()
  if (known) young.handlers.set('stock.changed', { ...known, messageCode: 'stock.changed' })
  return { sql, old, young }
}

/** The new process lives, in these roles. */
const join = (sql: Sql, roles = 'api,worker,dispatcher') =>
  writeNode(sql, {
    id: 'young',
    roles,
    version: 'test',
    handles: ['order.paid warehouse', 'stock.changed warehouse']
  })

const die = (sql: Sql) => sql`update node set seen_at = now() - interval '16 s' where id = 'young'`

const enqueue = (sql: Sql, messageCode: string, taskNo: string, orderingKey: string | null = null) =>
  sql`select ackbox_api.enqueue(${messageCode}, '1', ${taskNo}, ordering_key => ${orderingKey})`

const taskNos = async (sql: Sql): Promise<string[]> =>
  (await sql<{ task_no: string }[]>`select task_no from task order by id`).map(row => row.task_no)

const rejected = async (sql: Sql): Promise<string[]> =>
  (await sql<{ task_no: string }[]>`select task_no from outbox_rejected order by task_no`).map(
    row => row.task_no
  )

t.test(
  'rows whose handler only another dispatcher has stay for it, and those behind them do not',
  async t => {
    const { sql, old, young } = await deploy(t)
    await join(sql)
    await sql`select ackbox_api.enqueue('stock.changed', '1', 'stock-' || i) from generate_series(1, 250) i`
    await enqueue(sql, 'stock.changed', 'k-1', 'k')
    await enqueue(sql, 'order.paid', 'k-2', 'k')
    await enqueue(sql, 'order.paid', 'free')
    let reads = 0
    const counting = new Proxy(sql, {
      apply(target, self, given: [readonly string[]]) {
        if (given[0].join('').includes('from outbox')) reads++
        return Reflect.apply(target as never, self, given)
      }
    })
    const stop = new AbortController()
    t.teardown(() => stop.abort())
    const running = [old.outboxOfAnother({ node: 'old', sql: counting }).run(stop.signal)]
    await until('the one behind them is stored', async () => (await taskNos(sql)).length > 0)
    t.same(await taskNos(sql), ['free'])
    t.same(await sql`select from outbox_lease`, [], 'the shard of the key is free')
    const from = performance.now()
    reads = 0
    await until('it has looked again', () => reads > 5)
    t.ok(performance.now() - from > 1_000, `${performance.now() - from} ms for six looks`)
    running.push(young.outboxOfAnother({ node: 'young' }).run(stop.signal))
    await until('the other one takes them', async () => (await taskNos(sql)).length === 253)
    const keyed = (await taskNos(sql)).filter(taskNo => taskNo.startsWith('k-'))
    t.same(keyed, ['k-1', 'k-2'], 'in their order')
    stop.abort()
    await Promise.all(running)
    t.same(await rejected(sql), [])
    t.same(old.logged('outbox.rejected'), [])
  }
)

t.test('rows whose handler no live dispatcher has are rejected', async t => {
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
