// The producer and Ackbox in one database: the path without HTTP, from the transaction to the downstream.
import t from 'tap'
import { client, enqueue } from '../../src/producer/producer.ts'
import { only } from '../support/only.ts'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { onPostgres } from './libraries.ts'

t.setTimeout(600_000)

t.test('what a transaction enqueues arrives when it commits, and never when it does not', async t => {
  const at = await stage(t)
  if (!at) return
  const { url } = await start(t, at.env)
  await at.sql`create table account (id int primary key, balance int not null)`
  await at.sql`insert into account values (1, 100)`
  const task = (taskNo: string) => ({ taskNo, messageCode: 'test.plain', messageBodyText: '{"n": 1}' })

  for (const [index, library] of onPostgres.entries()) {
    await t.test(library.name, async t => {
      const opened = await library.open(at.databaseUrl)
      t.teardown(() => opened.close())
      await t.rejects(
        opened.transaction(async ({ tx, run }) => {
          await run('update account set balance = balance - 7 where id = 1')
          await enqueue(tx, task(`undone-${index}`))
          throw new Error('no')
        }),
        { message: 'no' }
      )
      await opened.transaction(async ({ tx, run }) => {
        await run('update account set balance = balance - 7 where id = 1')
        await enqueue(tx, task(`done-${index}`))
      })
      await client({ url }).nudge()
      const done = `${url}/tasks/done-${index}`
      await until('it is a task', async () => (await call(done)).status === 200)
      t.match(await settled(url, `done-${index}`), { body: { status: 'HANDLED' } })
      t.equal((await call(`${url}/tasks/undone-${index}`)).status, 404, 'it would have come before')
    })
  }
  t.match(await at.sql`select balance from account`, only({ balance: 100 - 7 * onPostgres.length }))
  t.same(await at.sql`select 1 from outbox`, [])
})

t.test(
  'every member goes along, and one that this Ackbox does not know is told in the transaction',
  async t => {
    const at = await stage(t)
    if (!at) return
    const [postgresJs] = onPostgres
    const opened = await postgresJs?.open(at.databaseUrl)
    if (!opened) return
    t.teardown(() => opened.close())
    const start = new Date(Date.now() + 60_000)
    await opened.transaction(({ tx }) =>
      enqueue(tx, {
        taskNo: 'full',
        messageCode: 'test.plain',
        messageBody: { n: 1 },
        sceneType: 'vip',
        deliverStartTime: start,
        delay: 1_500,
        deliverBefore: new Date(start.getTime() + 60_000),
        orderingKey: 'k',
        needCallback: false,
        retryTimes: 3,
        bizType: 'order',
        bizKey: '1',
        extend: { a: 1 },
        traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
      })
    )
    t.match(
      await at.sql`select *, delay::text as delay from outbox`,
      only({
        task_no: 'full',
        message_body: '{"n":1}',
        scene_type: 'vip',
        deliver_start_time: start,
        delay: '00:00:01.5',
        ordering_key: 'k',
        need_callback: false,
        retry_times: 3,
        biz_type: 'order',
        biz_key: '1',
        extend: { a: 1 }
      })
    )
  }
)
