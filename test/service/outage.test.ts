// What a process lives through: its Redis empty or dead, all of its connections to PostgreSQL cut.
import { connect } from 'node:net'
import t from 'tap'
import type { Sql } from '../../src/db/open.ts'
import { eachOf, postUntilTaken, settled, start } from '../support/service.ts'
import { numbered, post, stage, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(120_000)

const taskOf = (taskNo: string, n: number): object => ({
  taskNo,
  messageCode: n % 2 === 0 ? 'test.plain' : 'test.receipt',
  messageBody: { n }
})

/** Deliveries that used up more tries than there are attempts on record. */
const burnt = async (sql: Sql): Promise<object[]> =>
  await sql<object[]>`
  select d.task_id, d.downstream, d.tries_left, d.attempt, d.lost
  from delivery d
  where 10 - d.tries_left > (select count(*) from attempt a where a.task_id = d.task_id and a.downstream = d.downstream)`

/** A Redis takes a command as a line of text. */
const flush = (port: number): Promise<void> =>
  new Promise((resolve, reject) => {
    const socket = connect(port, '127.0.0.1', () => socket.write('FLUSHALL\r\n'))
    socket.once('error', reject).once('data', () => socket.end(resolve))
  })

t.test(
  'Redis is flushed, killed and comes back empty under load: nothing is lost and no try is burnt',
  async t => {
    const on = await stage(t, { redis: true, patient: true })
    if (!on?.redis) return
    const { downstream, redis, sql } = on
    const service = await start(t, on.env)
    const tasks = numbered('redis', 400)
    const posting = eachOf(tasks.map(taskOf), task => postUntilTaken(() => service.url, task))

    await downstream.received(100)
    await flush(redis.port)
    await downstream.received(200)
    await redis.kill()
    const away = numbered('away', 30)
    const times = await eachOf(away, async taskNo => {
      const began = performance.now()
      t.equal((await post(service.url, taskNo)).status, 201)
      return performance.now() - began
    })
    t.ok(
      Math.max(...times) < 2_000,
      `a POST is taken without Redis: ${Math.max(...times).toFixed(0)} ms at most`
    )
    await posting
    await redis.start()

    const ends = await eachOf([...tasks, ...away], taskNo => settled(service.url, taskNo))
    t.same(new Set(ends.map(end => end.body?.['status'])), new Set(['HANDLED']))
    t.same(await tally(sql), { HANDLED: 430 })
    t.same(await burnt(sql), [])
    t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it ends politely')
  }
)

t.test(
  'all connections to PostgreSQL are cut three times under load: the process lives and nothing is lost',
  async t => {
    const on = await stage(t, { patient: true })
    if (!on) return
    const { downstream, sql } = on
    const service = await start(t, on.env)
    const tasks = numbered('cut', 400)
    const posting = eachOf(tasks.map(taskOf), task => postUntilTaken(() => service.url, task))
    for (const at of [50, 120, 190]) {
      await downstream.received(at)
      await until('some were cut', async () => {
        const cut = await sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name <> 'ackbox test'`
        return cut.length > 0
      })
    }
    await posting
    const ends = await eachOf(tasks, taskNo => settled(service.url, taskNo))
    t.same(new Set(ends.map(end => end.body?.['status'])), new Set(['HANDLED']))
    t.same(await tally(sql), { HANDLED: 400 })
    t.same(await burnt(sql), [])
    t.same(
      await service.kill('SIGTERM'),
      { code: 0, signal: null },
      'the very process that was cut off ends politely'
    )
  }
)
