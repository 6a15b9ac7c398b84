// A synchronous standby is gone, and an operator cancels each wait for it: PostgreSQL then commits on the primary alone, with a warning.
import path from 'node:path'
import t from 'tap'
import { fetch } from 'undici'
import { producer } from '../support/halves.ts'
import { ownPostgres } from '../support/own-postgres.ts'
import { start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test(
  'what only the primary has is answered 503, however often it is sent, until standbys confirm again',
  async t => {
    const on = await stage(t, { receipts: false })
    if (!on) return
    const shop = await producer(t)
    const { url, sql } = await ownPostgres(t)
    const service = await start(t, {
      ...on.env,
      DATABASE_URL: url,
      TEST_PRODUCER: shop.url,
      EGRESS_ALLOW: `${on.env['EGRESS_ALLOW']},${new URL(shop.url).host}`,
      HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/handlers')
    })
    const post = async (
      route: string,
      body?: object,
      headers: Record<string, string> = {}
    ): Promise<number> => {
      const answer = await fetch(`${service.url}${route}`, {
        method: 'POST',
        headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
        body: body ? JSON.stringify(body) : null
      })
      await answer.arrayBuffer()
      return answer.status
    }
    const task = { messageCode: 'test.plain', messageBody: { n: 1 } }
    const receipt = { taskNo: 'receipt', messageCode: 'test.receipt' }
    t.equal(await post('/tasks', { ...task, taskNo: 'half', prepared: true }), 201)
    t.equal(await post('/tasks', { ...task, taskNo: 'undone', prepared: true }), 201)
    t.equal(await post('/tasks', { ...task, ...receipt }), 201)
    await on.downstream.received(1)
    const token = String(on.downstream.requests[0]?.headers['ackbox-callback-token'])
    await until('its send is written', async () => {
      const rows = await sql`select from delivery where phase = 'AWAITING_RECEIPT'`
      return rows.length === 1
    })

    const setStandbys = async (names: string): Promise<void> => {
      await sql.unsafe(`alter system set synchronous_standby_names = '${names}'`)
      await sql`select pg_reload_conf()`
      await until('it is in force', async () => {
        const [row] = await sql`select current_setting('synchronous_standby_names') = ${names} as is_set`
        return row?.['is_set'] === true
      })
    }
    const operator = new AbortController()
    const cancelling = (async () => {
      while (!operator.signal.aborted) {
        await sql`select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`
        await new Promise(resolve => setTimeout(resolve, 10))
      }
    })()
    const calls: [name: string, call: () => Promise<number>, atLast: number][] = [
      ['a task', () => post('/tasks', { ...task, taskNo: 'one' }), 200],
      ['several tasks', () => post('/tasks/batch', { tasks: [{ ...task, taskNo: 'two' }] }), 200],
      ['a half message', () => post('/tasks', { ...task, taskNo: 'new', prepared: true }), 200],
      ['a commit', () => post('/tasks/half/commit'), 200],
      ['a rollback', () => post('/tasks/undone/rollback'), 200]
    ]
    await setStandbys('ghost')
    for (const [name, call] of calls)
      for (let times = 0; times < 3; times++) t.equal(await call(), 503, `${name}: 503`)
    const unconfirmed = post('/callback', receipt, { 'ackbox-callback-token': token })
    await until('the receipt is written on the primary', async () => {
      const rows = await sql`select from receipt`
      return rows.length > 0
    })
    t.equal(await unconfirmed, 503, 'a receipt: 503')
    const stored = await sql<
      { task_no: string }[]
    >`select task_no from task where task_no in ('one', 'two', 'new')`
    t.equal(stored.length, 3, 'they are there all the same')

    await setStandbys('')
    operator.abort()
    await cancelling
    await until('it answers again', async () => (await calls[0]?.[1]()) === 200)
    for (const [name, call, atLast] of calls) t.equal(await call(), atLast, name)
    t.equal(await post('/callback', receipt, { 'ackbox-callback-token': token }), 200)
    const [row] = await sql`select count(*)::int as n, count(distinct task_no)::int as tasks from task`
    t.same({ ...row }, { n: 6, tasks: 6 }, 'and each is one task')
    t.equal((await service.kill('SIGTERM')).code, 0)
  }
)
