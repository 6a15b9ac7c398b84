// The work of an operator at three in the morning, over whole processes: a downstream returns 500, tasks FAIL, it is repaired, and all
// of them are redelivered, although a process dies on the way.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { only } from '../support/only.ts'
import { call, eachOf, settled, start } from '../support/service.ts'
import { numbered, stage, taken, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

function ackbox(
  url: string,
  ...args: string[]
): Promise<{ code: number | string; out: string; err: string }> {
  return new Promise(resolve => {
    const env = { PATH: process.env['PATH'], ACKBOX_URL: url }
    execFile(process.execPath, [program, 'tasks', ...args], { env, cwd: '/' }, (error, out, err) =>
      resolve({ code: error?.code ?? 0, out, err })
    )
  })
}

t.test(
  '500 that FAILED are redelivered as one operation, over the death of the process that does it',
  async t => {
    const downstream = { status: 200 }
    const on = await stage(t, { answer: () => downstream.status, patient: true })
    if (!on) return
    const { sql } = on
    const processes = await Promise.all([start(t, on.env), start(t, on.env)])
    const [here, there] = processes
    downstream.status = 500
    const tasks = numbered('bad', 500)
    await eachOf(tasks, taskNo => taken(here.url, taskNo, { retryTimes: 1 }))
    await eachOf(tasks, taskNo => settled(there.url, taskNo))
    t.same(await tally(sql), { FAILED: 500 })
    downstream.status = 200

    t.match(await call(`${here.url}/tasks/redeliver`, { filter: { taskNoPrefix: 'bad-' }, dryRun: true }), {
      status: 200,
      body: { dryRun: true, matched: 500 }
    })
    // Slow enough for a kill half-way.
    t.match(await call(`${here.url}/downstreams/plain`, { concurrency: 10 }, 'PATCH'), {
      status: 200,
      body: {
        name: 'plain',
        concurrency: 10,
        limits: { concurrency: 10, setBy: 'local' },
        handlerLimits: { concurrency: 50 }
      }
    })
    const begun = await call(`${here.url}/tasks/redeliver`, { filter: { taskNoPrefix: 'bad-' } })
    t.match(begun, { status: 202, body: { state: 'RUNNING', matched: 500 } })
    const id = String(begun.body?.['id'])
    const progress = async (url: string) => (await call(`${url}/operations/${id}`)).body ?? {}
    await until('it is half-way', async () => Number((await progress(here.url))['redelivered']) > 20)
    const [row] = await sql<{ owner: string }[]>`select owner from operation`
    const nodes = (await call(`${here.url}/nodes`)).body?.['nodes'] as { id: string; live: boolean }[]
    t.ok(nodes.some(one => one.id === row?.owner && one.live))
    const dying = processes.find(one => row?.owner.includes(`-${one.pid}-`))
    if (!dying) throw new Error(`who is ${row?.owner}?`)
    await dying.kill('SIGKILL')
    const living = dying === here ? there : here
    t.match((await call(`${living.url}/downstreams`)).body?.['downstreams'], [
      { name: 'plain', concurrency: 10 }
    ])
    await call(`${living.url}/downstreams/plain`, { concurrency: null }, 'PATCH')
    await until('another one ends it', async () => (await progress(living.url))['state'] === 'DONE')
    t.match(await progress(living.url), { redelivered: 500, skipped: 0, matched: 500 })
    await eachOf(tasks, taskNo => settled(living.url, taskNo))
    t.same(await tally(sql), { HANDLED: 500 }, 'nothing is missing')
    t.match(await progress(living.url), { deliveries: { HANDLED: 500 } })
    const list = await call(`${living.url}/operations/${id}/deliveries?limit=200`)
    t.match(list.body, { deliveries: { length: 200 }, nextCursor: String })
    const { body } = await call(`${living.url}/audit?what=downstream.limits&target=plain`)
    t.match(
      body?.['audit'],
      only(
        { detail: { before: { concurrency: 10 }, after: { concurrency: null } } },
        { detail: { before: null, after: { concurrency: 10, perSecond: null } } }
      )
    )
  }
)

t.test('that a receipt never came is read wherever the last attempt is shown, and found by it', async t => {
  const on = await stage(t, { receipts: false })
  if (!on) return
  const { url } = await start(t, on.env)
  await taken(url, 'silent', { messageCode: 'test.receipt', retryTimes: 2 })
  await taken(url, 'other', { retryTimes: 1 })
  const reason = 'no_receipt: none within 3 s'
  const missed = { outcome: 'delivered', status: 200, reason }
  t.match(await settled(url, 'silent'), {
    body: { status: 'FAILED', deliveries: [{ reason: 'RECEIPT_TIMEOUT', attempts: only(missed, missed) }] }
  })
  const text = 'lastReason=NO_RECEIPT'
  for (const list of [`/tasks?${text}`, `/tasks?status=FAILED&${text}`, `/tasks?taskNoPrefix=silent`])
    t.match(
      (await call(`${url}${list}`)).body?.['tasks'],
      only({ taskNo: 'silent', deliveries: [{ lastReason: reason, lastStatus: 200 }] })
    )
  t.match(
    (await call(`${url}/deliveries?${text}`)).body?.['deliveries'],
    only({ taskNo: 'silent', lastReason: reason, lastStatus: 200 })
  )
  t.match(await call(`${url}/tasks/redeliver`, { filter: { lastReason: 'no_receipt' }, dryRun: true }), {
    body: { matched: 1 }
  })
  t.match(await ackbox(url, 'list', '--text', 'no_receipt'), {
    code: 0,
    out: /silent {2}test\.receipt {2}receipted FAILED #2 \(no_receipt: none within 3 s\)\n$/
  })
  t.match(await ackbox(url, 'show', 'silent'), {
    code: 0,
    out: /RECEIPT_TIMEOUT\n.*#1 .* delivered {2}200 {2}no_receipt: none within 3 s .*\n.*#2 .* no_receipt: none within 3 s /
  })
})

t.test('the command line lists, shows, pushes, settles and redelivers', async t => {
  const downstream = { status: 200 }
  const on = await stage(t, { answer: () => downstream.status, patient: true })
  if (!on) return
  const { sql } = on
  const { url } = await start(t, on.env)
  downstream.status = 500
  for (const taskNo of ['one', 'two', 'three']) {
    await taken(url, taskNo, { retryTimes: 1 })
    await settled(url, taskNo)
  }
  t.match(await ackbox(url, 'list', '--status', 'FAILED', '--text', 'HTTP_500'), {
    code: 0,
    out: /FAILED {5}three {2}test\.plain {2}plain FAILED #1 \(http_500\)[^]*two[^]*one/
  })
  t.match(await ackbox(url, 'list', '--prefix', 'nobody'), { code: 0, out: /No task matches/ })
  t.match(await ackbox(url, 'show', 'one'), {
    code: 0,
    out: /SEND_EXHAUSTED[^]*#1 .* failed {2}500 {2}http_500/
  })
  t.match(await ackbox(url, 'push', 'one'), { code: 1, err: /NOTHING_TO_PUSH/ })
  await taken(url, 'later', { delay: 3_600_000 })
  await taken(url, 'behind', { after: ['later'] })
  t.match(await call(`${url}/tasks/later/push`, {}), { status: 409, body: { code: 'TASK_NOT_STARTED' } })
  t.match(await call(`${url}/tasks/behind/push`, {}), { status: 409, body: { code: 'TASK_BLOCKED' } })
  t.match(await ackbox(url, 'push', 'later'), { code: 1, err: /TASK_NOT_STARTED/ })
  t.match(await ackbox(url, 'show', 'behind'), { code: 0, out: /BLOCKED\n {4}.*\blater\b/ }, 'why it waits')
  for (const taskNo of ['behind', 'later']) {
    t.match(await call(`${url}/tasks/${taskNo}`), {
      body: { status: 'SENDING', deliveries: [{ attempt: 0 }] }
    })
    await call(`${url}/tasks/${taskNo}`, undefined, 'DELETE')
  }
  t.match(await ackbox(url, 'show', 'nobody'), { code: 1, err: /TASK_NOT_FOUND/ })
  t.match(await ackbox(url, 'settle', 'one', 'handled'), { code: 1, err: /Missing reason/ })
  t.match(await ackbox(url, 'settle', 'one', 'handled', '--reason', 'booked by hand'), {
    code: 0,
    out: /HANDLED/
  })
  t.match(await call(`${url}/tasks/one`), {
    body: { status: 'HANDLED', deliveries: [{ handledBy: 'operator', updatedBy: 'local' }] }
  })
  t.match(await call(`${url}/audit?target=one`), {
    body: {
      audit: only({
        who: 'local',
        what: 'task.settle',
        detail: { reason: 'booked by hand', before: { plain: 'FAILED' }, after: { plain: 'HANDLED' } }
      })
    }
  })
  downstream.status = 200
  t.match(await ackbox(url, 'redeliver', 'two'), { code: 0, out: /SENDING|HANDLED/ })
  await settled(url, 'two')
  t.match(await ackbox(url, 'redeliver', '--all', '--dry-run'), { code: 0, out: /^1 delivery would/ })
  t.match(await ackbox(url, 'redeliver', '--all', '--code', 'test.plain'), {
    code: 0,
    out: /is DONE: 1 redelivered, 0 skipped/
  })
  await settled(url, 'three')
  t.same(await tally(sql), { DELETED: 2, HANDLED: 3 })
  t.match(await ackbox('http://127.0.0.1:1', 'list'), { code: 1, err: /No service answers/ })
})
