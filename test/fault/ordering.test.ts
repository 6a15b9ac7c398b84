// Processes die while the tasks of a key are delivered in order, at each failpoint and at random, and others continue.
// Takes long: npm run test:long.
import t from 'tap'
import type { Sql } from '../../src/db/pool.ts'
import type { Failpoint } from '../../src/runtime/failpoint.ts'
import { freePort } from '../../src/embedded/port.ts'
import type { SinkRequest } from '../support/sink.ts'
import { settled, start, type Process } from '../support/service.ts'
import { numbered, stage, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const moments: Failpoint[] = [
  'accept.before_commit',
  'accept.after_commit',
  'complete.before_commit',
  'complete.after_commit',
  'receipt.after_commit',
  'promote.before',
  'promote.after_commit'
]

/** For each key, its tasks in the order of their first request. */
function firsts(requests: readonly SinkRequest[]): Map<string, string[]> {
  const order = new Map<string, string[]>()
  for (const { headers } of requests) {
    const taskNo = String(headers['ackbox-task-no'])
    const key = taskNo.split('.')[0] ?? ''
    const seen = order.get(key) ?? []
    if (!seen.includes(taskNo)) order.set(key, [...seen, taskNo])
  }
  return order
}

/** Tasks with an attempt that began before the previous task of their key was handled. */
const early = (sql: Sql) => sql`
  select t.task_no, p.task_no as before
  from (
    select d.*, lag(d.task_id) over w as before_id, lag(d.handled_at) over w as before_handled
    from delivery d window w as (partition by d.downstream, d.ordering_key order by abs(d.position))
  ) d
  join task t on t.id = d.task_id join task p on p.id = d.before_id
  where exists (
    select from attempt a
    where a.task_id = d.task_id and a.downstream = d.downstream and a.started_at < d.before_handled
  )`

for (const name of moments) {
  t.test(`kill -9 at ${name}: the key goes on where it was, and none overtakes another`, async t => {
    const on = await stage(t)
    if (!on) return
    const port = String(await freePort())
    const env = { ...on.env, PORT: port, PUBLIC_URL: `http://127.0.0.1:${port}` }
    const died = await start(t, { ...env, FAILPOINTS: `${name}=kill#3` })
    const order = numbered('k.task', 8)
    let next: Process | undefined
    const again = died.exited.then(async exit => {
      t.strictSame(exit, { code: null, signal: 'SIGKILL' })
      next = await start(t, env)
    })
    for (const taskNo of order)
      await taken(died.url, taskNo, { messageCode: 'test.receipt', orderingKey: 'k' })
    await again
    if (!next) return
    for (const taskNo of order) t.match(await settled(next.url, taskNo), { body: { status: 'HANDLED' } })
    t.same(firsts(on.downstream.requests).get('k'), order)
    t.same([...(await early(on.sql))], [])
    t.same(await tally(on.sql), { HANDLED: 8 })
  })
}

t.test(
  '4 producers, 15 keys, two processes of each role of which workers are killed all the time',
  async t => {
    let n = 0
    const wells: string[] = []
    const on = await stage(t, {
      answer: ({ headers }) => {
        if (n++ % 5 === 4) return 503
        wells.push(String(headers['ackbox-task-no']))
        return 200
      }
    })
    if (!on) return
    const ports = [String(await freePort()), String(await freePort())]
    const env = { ...on.env, PUBLIC_URL: `http://127.0.0.1:${ports[0]}` }
    const apis = await Promise.all(ports.map(PORT => start(t, { ...env, PORT, ROLE: 'api' })))
    const worker = () => start(t, { ...env, ROLE: 'worker,dispatcher' })
    const workers: Process[] = await Promise.all([worker(), worker()])
    const accepted = new Map<string, { taskNo: string; position: number }[]>()
    let posting = true
    const producing = Promise.all(
      [0, 1, 2, 3].map(async producer => {
        for (let i = 0; i < 75; i++) {
          const key = `key-${(producer + i) % 15}`
          const taskNo = `${key}.${producer}-${i}`
          const { body } = await taken(apis[i % 2]!.url, taskNo, {
            messageCode: 'test.receipt',
            orderingKey: key
          })
          const [delivery] = (body?.['deliveries'] ?? []) as { position: number }[]
          const of = accepted.get(key) ?? []
          of.push({ taskNo, position: delivery?.position ?? 0 })
          accepted.set(key, of)
        }
      })
    ).finally(() => (posting = false))
    let kills = 0
    while (posting || kills < 6) {
      await workers.shift()?.kill('SIGKILL')
      kills++
      workers.push(await worker())
    }
    await producing
    const all = [...accepted.values()].flat()
    t.equal(all.length, 300)
    await until('all are HANDLED', async () => (await tally(on.sql))['HANDLED'] === 300)
    for (const [key, of] of accepted) {
      const order = of.toSorted((a, b) => a.position - b.position).map(one => one.taskNo)
      t.same([...new Set(wells.filter(taskNo => taskNo.startsWith(`${key}.`)))], order, key)
    }
    t.same([...(await early(on.sql))], [])
    t.equal((await on.sql`select from promotion`).length, 0)
  }
)
