// Processes on one database that disagree, and one that cannot reach a downstream that the others reach.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { only } from '../support/only.ts'
import { call, eachOf, launch, settled, start } from '../support/service.ts'
import { sink } from '../support/sink.ts'
import { numbered, post, stage, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

interface Line {
  msg: string
  [field: string]: unknown
}
const linesOf = (one: { output(): string }, msg: string): Line[] =>
  one
    .output()
    .split('\n')
    .filter(line => line.startsWith('{'))
    .map(line => JSON.parse(line) as Line)
    .filter(line => line.msg === msg)

const doctor = (env: Record<string, string>): Promise<string> =>
  new Promise(resolve => {
    execFile(
      process.execPath,
      [program, 'doctor'],
      { env: { PATH: process.env['PATH'], ...env }, cwd: '/' },
      (_error, out) => resolve(out)
    )
  })

t.test('a process with another SECRET is refused at start; during a rotation it is not', async t => {
  const on = await stage(t)
  if (!on) return
  const first = await start(t, on.env)
  const another = 'another secret of the tests, which is long as well'
  const refused = launch(t, { ...on.env, PORT: String(await freePort()), SECRET: another })
  await until('it has ended, or runs', async () => /^ackbox: |"msg":"ready"/m.test(refused.output()))
  t.notMatch(refused.output(), /"msg":"ready"/)
  if (/"msg":"ready"/.test(refused.output())) return
  t.match(await refused.exited, { code: 1 })
  t.match(refused.output(), /^ackbox: SECRET is not that of \S+, which run on this database/m)
  t.notMatch(refused.output(), another)
  t.match(await doctor({ ...on.env, SECRET: another }), /FIX {3}Processes +SECRET differs from that of/)
  t.match(await doctor(on.env), /OK {4}Processes +1 run, with one SECRET, queue, set of handlers and/)

  const rotating = await start(t, { ...on.env, SECRET: another, SECRET_PREVIOUS: on.env['SECRET'] })
  t.equal((await call(`${rotating.url}/healthz`)).status, 200)
  const { body } = await call(`${first.url}/nodes`)
  const nodes = body?.['nodes'] as { secret: string; queue: string; handlers: string; live: boolean }[]
  t.equal(nodes.length, 2)
  t.match(nodes, [
    {
      live: true,
      queue: 'postgres',
      handlers: /^\d messageCodes, \w{12}$/,
      roles: only('api', 'worker', 'dispatcher')
    },
    {}
  ])
  t.not(nodes[0]?.secret, nodes[1]?.secret)
  t.notMatch(JSON.stringify(nodes), on.env['SECRET'] ?? '')
})

t.test('other handlers are warned about at start and by the doctor', async t => {
  const on = await stage(t)
  if (!on) return
  await start(t, on.env)
  const other = await start(t, {
    ...on.env,
    HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/long')
  })
  const warned = () => linesOf(other, 'doctor.warn').find(line => line['check'] === 'Processes')
  await until('it is warned', () => warned() !== undefined)
  const kept = await on.sql<{ handles: string[] }[]>`select handles from node order by started_at`
  t.ok((kept[0]?.handles.length ?? 0) > 1)
  t.same(kept[1]?.handles, ['test.plain plain'])
  t.match(warned(), { found: /handlers differ from those of/, remedy: /deploy the same handlers/ })
  t.match(await doctor(on.env), /WARN {2}Processes +the handlers differ from those of/)
})

t.test('a task that only another process has the handler of is answered 503 with a time', async t => {
  const on = await stage(t)
  if (!on) return
  const one = await start(t, on.env)
  const other = await start(t, {
    ...on.env,
    HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/long')
  })
  const task = { messageCode: 'test.receipt', messageBody: { n: 1 }, taskNo: 'one' }
  const send = (url: string, body: object) =>
    fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body)
    })
  const refused = await send(`${other.url}/tasks`, task)
  t.equal(refused.status, 503)
  t.equal(refused.headers.get('retry-after'), '1')
  t.match(await refused.json(), { code: 'UNAVAILABLE', detail: /another process has the handler/ })
  const batch = await send(`${other.url}/tasks/batch`, { tasks: [task] })
  t.match(await batch.json(), { results: only({ taskNo: 'one', status: 503, code: 'UNAVAILABLE' }) })
  t.equal((await send(`${other.url}/tasks`, { ...task, messageCode: 'test.nobody' })).status, 422)
  t.equal((await send(`${one.url}/tasks`, task)).status, 201)
})

t.test('other alarm channels are warned about at start and by the doctor, without their URLs', async t => {
  const on = await stage(t)
  if (!on) return
  await start(t, { ...on.env, ALARM_CHANNEL_OPS: 'https://hooks.example.com/canary' })
  const other = await start(t, on.env)
  const warned = () => linesOf(other, 'doctor.warn').find(line => line['check'] === 'Processes')
  await until('it is warned', () => warned() !== undefined)
  t.match(warned(), { found: /^the alarm channels are none here and ops at/, remedy: /ALARM_CHANNELS/ })
  const rule = JSON.stringify({ ops: { url: 'https://hooks.example.com/canary', kinds: ['TLS'] } })
  const said = await doctor({ ...on.env, ALARM_CHANNELS: rule })
  t.match(said, /WARN {2}Processes +the alarm channels are ops \{"kinds":\["TLS"\]\} here and/)
  t.notMatch(said, /canary/)
  t.match(
    await doctor({ ...on.env, ROLE: 'api' }),
    /WARN {2}Processes +the alarm channels are/,
    'a setup without channels compares the others'
  )
})

t.test('a channel that is renamed in a rolling deployment leaves its alarms to the new one', async t => {
  const on = await stage(t, { answer: () => 410 })
  if (!on) return
  const [old, fresh] = [await sink(t, { answer: () => 500 }), await sink(t)]
  const before = await start(t, { ...on.env, ALARM_CHANNEL_OLD: `webhook+${old.url}` })
  await post(before.url, 'lost')
  await old.received(1)
  const after = await start(t, { ...on.env, ALARM_CHANNEL_FRESH: `webhook+${fresh.url}` })
  t.same(fresh.requests, [], 'the old process may send it yet')
  await before.kill('SIGTERM')
  await fresh.received(1)
  t.match(fresh.requests[0]?.body.toString(), '"taskNo":"lost"')
  t.match(linesOf(after, 'alarm.released'), only({ released: 1 }))
})

t.test('another queue is warned about at start and by the doctor, without its password', async t => {
  const on = await stage(t, { redis: true })
  if (!on) return
  await start(t, on.env)
  const prefixed = await start(t, { ...on.env, REDIS_PREFIX: 'other' })
  const { REDIS_URL = '', ...without } = on.env
  for (const [env, ours] of [
    [{ ...on.env, REDIS_PREFIX: 'third' }, /the queue is redis \S+ third here and redis \S+ \w+ at/],
    [without, /the queue is postgres here and redis \S+ \w+ at/],
    [
      { ...on.env, REDIS_URL: REDIS_URL.replace('redis://', 'redis://:hush@') },
      /the queue is redis \S+ ackbox here and redis \S+ other at/
    ]
  ] as const) {
    const said = await doctor(env)
    t.match(said, new RegExp(`WARN {2}Processes +${ours.source}`))
    t.match(said, /-> set the same REDIS_URL and REDIS_PREFIX/)
    t.notMatch(said, /hush/)
  }
  const warned = () => linesOf(prefixed, 'doctor.warn').find(line => line['check'] === 'Processes')
  await until('it is warned', () => warned() !== undefined)
  t.match(warned(), { found: /^the queue is redis \S+ other here/, remedy: /set the same REDIS_URL/ })
})

t.test(
  'a worker that cannot reach a downstream leaves it to one that can: 300 deliveries, none FAILED',
  async t => {
    const on = await stage(t, { redis: true })
    if (!on) return
    const good = await start(t, on.env)
    // Nobody listens there: only this process cannot reach the downstream, for instance by a wrong route or name.
    const nowhere = `http://127.0.0.1:${await freePort()}`
    const bad = await start(t, {
      ...on.env,
      TEST_SINK: nowhere,
      EGRESS_ALLOW: `${new URL(nowhere).host},${on.env['EGRESS_ALLOW'] ?? ''}`
    })
    const tasks = numbered('far', 300)
    await eachOf(tasks, (taskNo, at = Number(taskNo.slice(4))) =>
      taken(at % 2 === 0 ? good.url : bad.url, taskNo, { retryTimes: 50 })
    )
    // All tasks may end before the two processes know of each other. More are posted until it yields.
    await until('it yields', async () => {
      if (linesOf(bad, 'worker.yielded').length > 0) return true
      tasks.push(`far-${tasks.length}`)
      await taken(bad.url, tasks.at(-1) ?? '', { retryTimes: 50 })
      return false
    })
    await eachOf(tasks, taskNo => settled(good.url, taskNo))
    t.same(await tally(on.sql), { HANDLED: tasks.length })
    t.match(linesOf(bad, 'worker.yielded'), only({ downstream: 'plain', reason: 'connection_refused' }))
    t.same(linesOf(good, 'worker.yielded'), [])
    const { body } = await call(`${good.url}/nodes`)
    const yielded = ((body?.['nodes'] ?? []) as { yielded: object[] }[]).flatMap(one => one.yielded)
    t.match(yielded, only({ downstream: 'plain', reason: 'connection_refused', until: String }))
    const metrics = await fetch(`${bad.url}/metrics`).then(answer => answer.text())
    t.match(metrics, /^ackbox_worker_yields_total\{downstream="plain"\} 1$/m)
    // How many attempts failed before depends on how soon the processes learn of each other. While it yields, it takes nothing.
    const refused = () =>
      linesOf(bad, 'attempt.done').filter(one => one['reason'] === 'connection_refused').length
    const before = refused()
    await eachOf(numbered('more', 50), async taskNo => {
      await post(bad.url, taskNo)
      t.match(await settled(good.url, taskNo), { body: { status: 'HANDLED' } })
    })
    t.equal(refused(), before)
  }
)
