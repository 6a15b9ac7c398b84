// Producers that make no mistake: they hang up too early, post twice, by two processes, or for a day far ahead.
// Takes long: npm run test:long.
import { once } from 'node:events'
import { connect } from 'node:net'
import t from 'tap'
import { call, eachOf, settled, start, untilHeard, type Process } from '../support/service.ts'
import { numbered, post, repeated, stage, taken } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

t.test('a producer that hangs up before the answer posts again, and there is one task', async t => {
  const on = await stage(t, { patient: true })
  if (!on) return
  const { url } = await start(t, on.env)
  const port = Number(new URL(url).port)
  const taskNos = numbered('hung-up', 200)
  await eachOf(taskNos, async taskNo => {
    const body = JSON.stringify({ taskNo, messageCode: 'test.plain', messageBody: { n: 1 } })
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    const head = `POST /tasks HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`
    // The request without its last byte, or the whole request and then a close or a reset.
    const n = Number(taskNo.slice(taskNo.lastIndexOf('-') + 1))
    socket.write(n % 3 === 0 ? head + body.slice(0, -1) : head + body, () => {
      if (n % 3 === 1) socket.resetAndDestroy()
      else socket.destroy()
    })
    await once(socket, 'close')
  })
  const again = await eachOf(taskNos, taskNo => taken(url, taskNo))
  t.same(
    new Set(again.map(one => one.status)),
    new Set([200, 201]),
    'some were taken already, none is in doubt'
  )
  const ends = await eachOf(taskNos, taskNo => settled(url, taskNo))
  t.same(new Set(ends.map(end => end.body?.['status'])), new Set(['HANDLED']))
  t.same(await repeated(on.sql, on.downstream), [], 'each was delivered once')
})

t.test(
  'the same task by two doors at once is one task; two contents for one number are a conflict',
  async t => {
    const on = await stage(t)
    if (!on) return
    const doors = await Promise.all([
      start(t, { ...on.env, ROLE: 'api' }),
      start(t, { ...on.env, ROLE: 'api' })
    ])
    const by = (n: number): Process => doors[n % 2] ?? doors[0]
    const same = await Promise.all(numbered('x', 50).map((_, n) => untilHeard(() => post(by(n).url, 'same'))))
    t.same(
      same.map(one => one.status).toSorted((a, b) => a - b),
      [...new Array<number>(49).fill(200), 201]
    )
    const other = await Promise.all(
      numbered('x', 50).map((_, n) => untilHeard(() => post(by(n).url, 'other', { messageBody: { n } })))
    )
    t.same(
      other.map(one => one.status).toSorted((a, b) => a - b),
      [201, ...new Array<number>(49).fill(409)]
    )
    const [row] = await on.sql`select count(*)::int as n from task`
    t.equal(row?.['n'], 2)
    const batches = await Promise.all(
      doors.map(door =>
        call(`${door.url}/tasks/batch`, {
          tasks: numbered('batch', 500).map(taskNo => ({
            taskNo,
            messageCode: 'test.plain',
            messageBody: { n: 1 }
          }))
        })
      )
    )
    const results = batches.map(one => one.body?.['results'] as { taskNo: string; status: number }[])
    const created = results.flat().filter(one => one.status === 201)
    t.equal(
      new Set(created.map(one => one.taskNo)).size,
      500,
      'each of two equal batches at once is made once'
    )
    t.equal(created.length, 500)
    t.equal(results.flat().filter(one => one.status === 200).length, 500)
  }
)

t.test('what is due in 25 days, or in a year, is not sent now', async t => {
  const on = await stage(t)
  if (!on) return
  const { url } = await start(t, { ...on.env, SWEEP_MS: '20' })
  const day = 86_400_000
  // A timer of more than 2^31 ms, which is 24.8 days, fires at once in Node.
  for (const days of [24, 25, 50, 365]) {
    await taken(url, `in-${days}`, { deliverStartTime: new Date(Date.now() + days * day).toISOString() })
    await taken(url, `in-${days}-more`, { delay: days * day })
  }
  await taken(url, 'now')
  await settled(url, 'now')
  // Posted after them, due before them: the dispatcher polls many times in between.
  await taken(url, 'soon', { delay: 1_000 })
  await until('what is due soon is there', () => on.downstream.count('soon') === 1)
  t.same(
    on.downstream.requests.map(one => one.headers['ackbox-task-no']),
    ['now', 'soon']
  )
  await settled(url, 'soon') // the outcome is written after the request
  const rows = await on.sql`select phase, attempt from delivery where status = 0`
  t.same(new Set(rows.map(row => `${row['phase']} ${row['attempt']}`)), new Set(['WAITING 0']))
})
