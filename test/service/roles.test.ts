// Two processes of each role, on one PostgreSQL and one Redis.
// Takes long: npm run test:long.
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { balancer } from '../support/balancer.ts'
import { call, eachOf, postUntilTaken, start, type Process } from '../support/service.ts'
import { numbered, post, repeated, stage, statusAtLast, taken, tally } from '../support/stage.ts'

t.setTimeout(2_400_000)

t.test('two of each role share the work, and the death of one of each loses nothing', async t => {
  const on = await stage(t, { redis: true, patient: true })
  if (!on) return
  const { sql, downstream } = on
  const ports = [String(await freePort()), String(await freePort())]
  const gate = await balancer(
    t,
    ports.map(port => `http://127.0.0.1:${port}`)
  )
  const env = { ...on.env, PUBLIC_URL: gate.url, LOG_LEVEL: 'debug' }
  const two = async (role: string, at: string[] = []): Promise<[Process, Process]> =>
    Promise.all([
      start(t, { ...env, ROLE: role, ...(at[0] ? { PORT: at[0] } : {}) }),
      start(t, { ...env, ROLE: role, ...(at[1] ? { PORT: at[1] } : {}) })
    ])
  const [apis, workers, dispatchers] = await Promise.all([
    two('api', ports),
    two('worker'),
    two('dispatcher')
  ])

  await t.test(
    'what is posted to one api is there at once on the other, and all of it is handled',
    async t => {
      const tasks = numbered('shared', 240).map((taskNo, n) => ({
        taskNo,
        n,
        messageCode: n % 2 === 0 ? ('test.plain' as const) : ('test.receipt' as const),
        // A quarter is due later: the dispatchers claim these.
        ...(n % 4 === 0 ? { delay: 200 + n } : {})
      }))
      const unseen: string[] = []
      await eachOf(tasks, async ({ taskNo, n, ...more }) => {
        const [here, there] = n % 3 === 0 ? apis : [apis[1], apis[0]]
        await taken(here.url, taskNo, more)
        const read = await call(`${there.url}/tasks/${taskNo}`)
        // A busy machine returns 503 now and then: that does not show whether the task exists.
        if (read.status < 500 && read.status !== 200) unseen.push(`${taskNo} ${read.status}`)
      })
      t.same(unseen, [])
      const ends = await eachOf(tasks, ({ taskNo }) => statusAtLast(apis[0].url, taskNo))
      t.same(new Set(ends), new Set(['HANDLED']))
      t.same(await repeated(sql, downstream), [], 'each was delivered exactly once')
    }
  )

  await t.test('each did what its role is, and nothing else', async t => {
    const rows = await sql<{ node: string }[]>`select distinct node from attempt`
    const sent = rows.map(row => Number(/-(\d+)-[0-9a-f]+$/.exec(row.node)?.[1]))
    t.same(new Set(sent), new Set(workers.map(one => one.pid)), 'both workers sent, and nobody else')
    const claims = (one: Process): boolean => /"msg":"schedule.claimed"/.test(one.output())
    t.ok(dispatchers.some(claims), 'dispatchers claimed what became due')
    t.notOk([...apis, ...workers].some(claims), 'and nobody else')
    for (const one of [...workers, ...dispatchers]) {
      t.equal((await call(`${one.url}/readyz`)).status, 200, 'it tells its health')
      t.equal((await post(one.url, 'wrong-door')).status, 404, 'and takes no tasks')
    }
    const nodes = await sql<{ roles: string; n: number }[]>`
      select roles, count(*)::int as n from node group by roles order by roles`
    t.same(
      nodes.map(row => ({ ...row })),
      ['api', 'dispatcher', 'worker'].map(roles => ({ roles, n: 2 }))
    )
  })

  await t.test('kill -9 of one of each under load loses nothing', async t => {
    const before = downstream.requests.length
    const tasks = numbered('killed', 400).map((taskNo, n) => ({
      taskNo,
      messageCode: n % 2 === 0 ? 'test.plain' : 'test.receipt',
      messageBody: { n },
      ...(n % 5 === 0 ? { delay: 300 } : {})
    }))
    const posting = eachOf(tasks, task => postUntilTaken(() => gate.url, task))
    const victims = [apis, workers, dispatchers].map(pair => pair[Math.random() < 0.5 ? 0 : 1])
    for (const [index, victim] of victims.entries()) {
      await downstream.received(before + 75 * (index + 1))
      t.equal((await victim.kill('SIGKILL')).signal, 'SIGKILL', 'it was killed in the middle')
    }
    await posting
    const ends = await eachOf(tasks, ({ taskNo }) => statusAtLast(gate.url, taskNo))
    const wrong = ends.filter(end => end !== 'HANDLED')
    t.same(wrong.slice(0, 3), [], 'all of them ended HANDLED')
    t.same(await tally(sql), { HANDLED: 640 })
    for (const one of [apis, workers, dispatchers].flat().filter(one => !victims.includes(one)))
      t.same(await one.kill('SIGTERM'), { code: 0, signal: null }, 'the others end politely')
  })
})
