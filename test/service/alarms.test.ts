// The alarms that people receive when a delivery fails for good.
// Takes long: npm run test:long.
import { Webhook } from 'standardwebhooks'
import t from 'tap'
import type { AlarmMessage } from '../../src/alarm/types.ts'
import { signingSecret } from '../../src/domain/tokens.ts'
import { age } from '../support/aged.ts'
import { only } from '../support/only.ts'
import { call, secret, settled, start } from '../support/service.ts'
import { sink, type Sink } from '../support/sink.ts'
import { numbered, post, stage, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'
import { channelUrl, vendor } from '../support/vendors.ts'

t.setTimeout(2_400_000)
t.jobs = 2

const sum = (numbers: number[]): number => numbers.reduce((a, b) => a + b, 0)

/** The messages received. Each must be signed as Standard Webhooks requires: otherwise `verify` throws. */
const heard = (receiver: Sink, key: string): AlarmMessage[] =>
  receiver.requests.map(
    ({ body, headers }) => new Webhook(key).verify(body, headers as Record<string, string>) as AlarmMessage
  )

/** All alarms of the list, page by page. */
async function listed(url: string, filter: string): Promise<Record<string, unknown>[]> {
  const all: Record<string, unknown>[] = []
  for (let cursor = ''; ;) {
    const { body } = await call(`${url}/alarms?limit=200&${filter}${cursor}`)
    all.push(...(body?.['alarms'] as Record<string, unknown>[]))
    const next = body?.['nextCursor']
    if (typeof next !== 'string') return all
    cursor = `&cursor=${encodeURIComponent(next)}`
  }
}

t.test(
  'a thousand failures at once become a few signed messages, though the receiver stumbles first',
  { buffered: true },
  async t => {
    const on = await stage(t, { answer: () => 500, patient: true })
    if (!on) return
    const receiver = await sink(t, { answer: () => (receiver.requests.length <= 2 ? 500 : 200) })
    const key = `whsec_${Buffer.from('a key of twenty-four bytes').toString('base64')}`
    const service = await start(t, {
      ...on.env,
      ALARM_WEBHOOK_URL: `${receiver.url}/alarms`,
      ALARM_WEBHOOK_SECRET: key
    })
    const tasks = numbered('broken', 1_000).map(taskNo => ({
      taskNo,
      messageCode: 'test.plain',
      messageBody: { n: 1 },
      retryTimes: 1
    }))
    t.equal((await call(`${service.url}/tasks/batch`, { tasks })).status, 200)
    await until('all of them failed', async () => (await tally(on.sql))['FAILED'] === 1_000)
    const unsent = async (): Promise<object[]> =>
      await on.sql<object[]>`select from alarm where sent_at is null`
    await until('all of them were told', async () => (await unsent()).length === 0)

    const messages = heard(receiver, key)
    t.match(messages[0], {
      type: 'ackbox.alarm',
      downstream: 'plain',
      kind: 'FAILED',
      deliveries: [{ messageCode: 'test.plain', attempt: 1, reason: 'SEND_EXHAUSTED' }]
    })
    const taken = sum(messages.slice(2).map(message => message.count))
    t.equal(taken, 1_000, 'what was taken speaks of each of them once')
    t.ok(messages.length < 40, `in a bounded number of messages: ${messages.length}`)
    t.ok(messages.every(message => message.deliveries.length === Math.min(100, message.count)))
    const alarms = await listed(service.url, 'open=true')
    t.equal(new Set(alarms.map(alarm => alarm['taskNo'])).size, 1_000, 'none is lost from the list')
    t.ok(alarms.every(alarm => alarm['sentAt'] !== undefined && alarm['status'] === 'FAILED'))
    t.equal((service.output().match(/"msg":"alarm"/g) ?? []).length, 1_000, 'and each is in the log once')
  }
)

t.test('a late receipt and a redelivery resolve their alarms', { buffered: true }, async t => {
  let well = false
  const on = await stage(t, { answer: () => (well ? 200 : 500), receipts: false })
  if (!on) return
  const receiver = await sink(t)
  const service = await start(t, { ...on.env, ALARM_WEBHOOK_URL: receiver.url })
  await post(service.url, 'late', { messageCode: 'test.receipt', retryTimes: 1 })
  await post(service.url, 'again', { retryTimes: 1 })
  for (const taskNo of ['late', 'again'])
    t.match(await settled(service.url, taskNo), { body: { status: 'FAILED' } })
  t.equal((await listed(service.url, 'open=true')).length, 2, 'both are listed as open')
  await receiver.received(2)
  t.equal(
    sum(heard(receiver, signingSecret(secret, 'ackbox-alarm')).map(message => message.count)),
    2,
    'both were told, signed by a key derived from SECRET'
  )

  const request = on.downstream.requests.find(one => one.headers['ackbox-task-no'] === 'late')
  const answer = await fetch(`${service.url}/callback`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'ackbox-callback-token': String(request?.headers['ackbox-callback-token'])
    },
    body: JSON.stringify({ taskNo: 'late', messageCode: 'test.receipt' })
  })
  t.match(await answer.json(), { status: 'HANDLED', applied: true, late: true })
  t.match(await listed(service.url, 'open=true'), only({ taskNo: 'again' }), 'the receipt resolved the first')

  well = true
  t.equal((await call(`${service.url}/tasks/again/redeliver`, {})).status, 200)
  t.same(await listed(service.url, 'open=true'), [], 'the redelivery the second')
  t.match(await settled(service.url, 'again'), { body: { status: 'HANDLED' } })
  const resolved = await listed(service.url, 'open=false')
  t.equal(resolved.filter(alarm => alarm['resolvedAt'] !== undefined).length, 2, 'both stay on record')
})

t.test(
  'a channel that never answers keeps nobody waiting, and hears what a killed process owed it',
  { buffered: true },
  async t => {
    const on = await stage(t, { answer: () => 410 })
    if (!on) return
    let hangs = true
    const [slow, ding] = [
      await sink(t, { answer: () => (hangs ? 'hang' : 200) }),
      await vendor(t, 'dingtalk')
    ]
    const env = {
      ...on.env,
      ALARM_CHANNELS: JSON.stringify({ slow: `webhook+${slow.url}`, ops: channelUrl('dingtalk', ding) })
    }
    const first = await start(t, env)
    await post(first.url, 'lost')
    await until('the robot was told', async () => ding.taken.length === 1)
    t.match(ding.taken, [/下游 plain 有 1 个 FAILED/])
    await slow.received(1)
    const owed = () => on.sql`select from alarm_send where channel = 'ops'`
    await until('that is written down', async () => (await owed()).length === 0)
    await first.kill('SIGKILL')
    hangs = false
    // As if the lease of the killed process had run out.
    await on.sql`update alarm_group set next_action_at = now() where tries > 0`
    const second = await start(t, env)
    await slow.received(2)
    await until('nothing is owed', async () => (await on.sql`select from alarm_send`).length === 0)
    const ids = slow.requests.map(({ headers }) => headers['webhook-id'])
    t.equal(ids[0], ids[1], 'the same message')
    t.equal(ding.taken.length, 1, 'and the robot is not told again')
    for (const { output } of [first, second]) t.notMatch(output(), /canary/i)
  }
)

t.test('without a webhook the log says it, in one line for each', { buffered: true }, async t => {
  const on = await stage(t, { answer: () => 410 })
  if (!on) return
  const service = await start(t, on.env)
  await post(service.url, 'silent')
  await until('it is in the log', () => /"msg":"alarm"/.test(service.output()))
  const lines = service
    .output()
    .split('\n')
    .filter(line => line.includes('"msg":"alarm"'))
  t.equal(lines.length, 1)
  t.match(JSON.parse(lines[0] ?? ''), {
    level: 50,
    taskNo: 'silent',
    messageCode: 'test.plain',
    downstream: 'plain',
    kind: 'FAILED'
  })
  await until('it counts as told', async () => {
    const [alarm] = await listed(service.url, '')
    return alarm?.['sentAt'] !== undefined
  })
})

t.test(
  'an alarm that nobody could resolve at the end of its cause is resolved by the service',
  { buffered: true },
  async t => {
    const on = await stage(t)
    if (!on) return
    await age(on.sql, { name: 'handled', n: 1, days: 1, status: 'HANDLED' })
    await on.sql`
    insert into alarm (task_id, downstream, attempt, kind, sent_at)
    select task_id, downstream, attempt, 'TLS', now() from delivery`
    await start(t, on.env)
    await until(
      'it is resolved',
      async () => (await on.sql`select from alarm where kind = 'TLS' and resolved_at is null`).length === 0
    )
  }
)
