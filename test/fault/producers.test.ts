// Many requests at once, at two processes: equal POSTs make one task, and an accepted task is visible at every process.
// Takes long: npm run test:long.
import t from 'tap'
import { fetch } from 'undici'
import { call, eachOf, start, untilHeard, type Process } from '../support/service.ts'
import { numbered, post, repeated, stage, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const counts = (statuses: number[]): Record<string, number> => {
  const counted: Record<string, number> = {}
  for (const status of statuses) counted[status] = (counted[status] ?? 0) + 1
  return counted
}

t.test('50 POSTs at once through two processes are one task, and every process knows it', async t => {
  const on = await stage(t, { patient: true, redis: true })
  if (!on) return
  const [one, two] = await Promise.all([start(t, on.env), start(t, { ...on.env, ROLE: 'api' })])
  const at = (n: number): Process => (n % 2 === 0 ? one : two)
  for (let round = 0; round < 5; round++) {
    const equal = await Promise.all(
      Array.from({ length: 50 }, (_, n) => untilHeard(() => post(at(n).url, `equal-${round}`)))
    )
    const created = equal.filter(answer => answer.status === 201).length
    t.ok(created === 1 || (created === 0 && equal.some(answer => answer.isAgain)), 'equal ones are one task')
    t.same(
      equal.filter(answer => answer.status > 201),
      []
    )
    const name = `different-${round}`
    const different = await Promise.all(
      Array.from({ length: 50 }, (_, n) => untilHeard(() => post(at(n).url, name, { messageBody: { n } })))
    )
    const statuses = different.map(({ status, isAgain }) => (status === 200 && isAgain ? 201 : status))
    t.same(counts(statuses), { 201: 1, 409: 49 }, 'the first body stands')
    const winner = statuses.indexOf(201)
    for (const asked of [one, two])
      t.match(await untilHeard(() => call(`${asked.url}/tasks/${name}`)), {
        status: 200,
        body: { messageBody: { n: winner } }
      })
  }
  const unseen: string[] = []
  await eachOf(numbered('seen', 100), async taskNo => {
    const n = Number(taskNo.split('-')[1])
    const posted = await untilHeard(() => post(at(n).url, taskNo))
    const seen = await untilHeard(() => call(`${at(n + 1).url}/tasks/${taskNo}`))
    if (posted.status > 201 || seen.status !== 200) unseen.push(taskNo)
  })
  t.same(unseen, [], 'a GET on the other process right after the 2xx')
  await until('all were sent', async () => (await tally(on.sql))['HANDLED'] === 110)
  t.same(
    on.downstream.requests.map(request => request.body).filter(body => !/^\{"n":\d+\}$/.test(body)),
    []
  )
  t.same(await repeated(on.sql, on.downstream), [], 'each was delivered once')
})

t.test(
  'receipts are taken without Redis and without any worker: 50 at once, before our own record, are one transition',
  async t => {
    let answer: (status: number) => void = () => {}
    const held = new Promise<number>(resolve => {
      answer = resolve
    })
    t.teardown(() => answer(200))
    const on = await stage(t, { answer: () => held, receipts: false, redis: true, patient: true })
    if (!on?.redis) return
    const { downstream, sql } = on
    const [one, two, worker] = await Promise.all([
      start(t, { ...on.env, ROLE: 'api' }),
      start(t, { ...on.env, ROLE: 'api' }),
      start(t, { ...on.env, ROLE: 'worker,dispatcher' })
    ])
    const tasks = numbered('early', 5)
    for (const taskNo of tasks) await taken(one.url, taskNo, { messageCode: 'test.receipt' })
    await downstream.received(5)
    await worker.kill('SIGKILL')
    await on.redis.kill()
    for (const taskNo of tasks) {
      const request = downstream.requests.find(seen => seen.headers['ackbox-task-no'] === taskNo)
      const answers = await Promise.all(
        Array.from({ length: 50 }, async (_, n) =>
          untilHeard(async () => {
            const answer = await fetch(`${(n % 2 === 0 ? one : two).url}/callback`, {
              method: 'POST',
              headers: {
                'content-type': 'application/json',
                'ackbox-callback-token': String(request?.headers['ackbox-callback-token'])
              },
              body: JSON.stringify({ taskNo, messageCode: 'test.receipt' })
            })
            return {
              status: answer.status,
              body: (await answer.json()) as { status: string; applied: boolean }
            }
          })
        )
      )
      t.same(new Set(answers.map(one => `${one.status} ${one.body.status}`)), new Set(['200 HANDLED']))
      t.ok(answers.filter(one => one.body.applied).length <= 1, 'one of them did it')
    }
    t.same(await tally(sql), { HANDLED: 5 })
    const kept = await sql<{ applied: number; all: number }[]>`
      select count(*) filter (where applied)::int as applied, count(*)::int as all from receipt group by task_id`
    // Each process stores at most 20; two that store at the same moment do not see each other's rows.
    t.same(
      kept.filter(row => row.applied !== 1 || row.all > 40),
      [],
      'and only a bounded number is kept'
    )
  }
)
