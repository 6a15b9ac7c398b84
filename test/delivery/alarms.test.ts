import t from 'tap'
import { sendAlarms, type AlarmChannel, type AlarmMessage } from '../../src/delivery/alarms.ts'
import type { Outcome } from '../../src/domain/types.ts'
import { delivered, failed } from '../support/scripted.ts'
import { asked } from '../support/asked.ts'
import { setup, type Line } from '../support/setup.ts'

const errorsInto = (lines: Line[]) => ({
  debug() {},
  info() {},
  warn() {},
  error: (fields: object, message: string) => lines.push({ ...fields, level: 'error', message })
})

t.test(
  '10,000 that fail at once become a bounded number of messages, and none is lost from the list',
  async t => {
    const { sql, lines } = await setup(t)
    await sql`
    insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
    select gen_random_uuid(), 'no:' || n, 'order.paid', '', '{}', '', 'test' from generate_series(1, 10000) n`
    await sql`
    insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, reason)
    select id, 'warehouse', 2, 1, 0, false, 'SEND_EXHAUSTED' from task`
    await sql`insert into alarm (task_id, downstream, attempt, kind) select id, 'warehouse', 1, 'FAILED' from task`
    const messages: AlarmMessage[] = []
    const channel: AlarmChannel = async message => {
      messages.push(message)
      return true
    }
    const log = errorsInto(lines)
    while ((await sendAlarms({ sql, channel, log })) > 0);
    t.equal(messages.length, 10)
    t.equal(
      messages.reduce((sum, one) => sum + one.count, 0),
      10_000
    )
    t.ok(messages.every(one => one.deliveries.length === 100))
    t.equal((await sql`select from alarm where sent_at is null`).length, 0)
    t.equal(lines.filter(line => line.message === 'alarm').length, 10_000)
  }
)

t.test('what fails for good is heard of: what, where and why', async t => {
  const { post, downstream, quiet, sql, lines } = await setup(t)
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  const messages: AlarmMessage[] = []
  const log = errorsInto(lines)
  t.equal(await sendAlarms({ sql, channel: async message => messages.push(message) > 0, log }), 1)
  t.match(messages, [
    {
      type: 'ackbox.alarm',
      messageCode: 'order.paid',
      downstream: 'warehouse',
      kind: 'FAILED',
      count: 1,
      deliveries: [{ taskNo, attempt: 1, reason: 'SEND_EXHAUSTED' }]
    }
  ])
  t.match(
    lines.filter(line => line.message === 'alarm'),
    [{ taskNo, kind: 'FAILED', reason: 'SEND_EXHAUSTED' }]
  )
  t.equal(await sendAlarms({ sql, channel: undefined, log }), 0)
})

t.test('a channel that is away, or breaks for some, gets only those again that it did not take', async t => {
  const { accept, downstream, quiet, sql } = await setup(t, {
    downstreams: { points: {}, warehouse: {} }
  })
  downstream.usual = failed
  await accept.many([asked({ retryTimes: 1 }), asked({ retryTimes: 1 })])
  await quiet()
  const log = { debug() {}, info() {}, warn() {}, error() {} }
  let broken = true
  const taken: string[] = []
  const channel: AlarmChannel = async ({ downstream: name }) => {
    if (broken && name === 'points') throw new Error('no such host')
    taken.push(name)
    return true
  }
  t.equal(await sendAlarms({ sql, channel, log }), 4)
  broken = false
  await sql`update alarm set next_action_at = now()`
  t.equal(await sendAlarms({ sql, channel, log }), 2)
  t.same(taken, ['warehouse', 'points'])
})

t.test('a blocked target is heard of at once, once a round, and resolved when it is delivered', async t => {
  const { post, downstream, quiet, later, dispatch, sql } = await setup(t)
  const blocked: Outcome = { kind: 'failed', reason: 'blocked_target', alarm: 'BLOCKED_TARGET' }
  downstream.next(blocked, blocked, blocked, delivered)
  await post()
  const alarms = () => sql<{ kind: string; attempt: number; open: boolean }[]>`
    select kind, attempt, resolved_at is null as open from alarm`
  for (let n = 0; n < 3; n++) {
    await quiet()
    t.same([...(await alarms())], [{ kind: 'BLOCKED_TARGET', attempt: 1, open: true }])
    await later('70 s')
    await dispatch()
  }
  t.same([...(await alarms())], [{ kind: 'BLOCKED_TARGET', attempt: 1, open: false }])
})

t.test('the alarm of a blocked target says what to set, in the log as in the message', async t => {
  const { sql, post, quiet, downstream, lines } = await setup(t)
  const reason = 'blocked_target: to allow it set EGRESS_ALLOW=127.0.0.1:8090'
  downstream.next({ kind: 'failed', alarm: 'BLOCKED_TARGET', reason })
  await post()
  await quiet()
  const messages: AlarmMessage[] = []
  const log = errorsInto(lines)
  await sendAlarms({ sql, channel: async message => messages.push(message) > 0, log })
  t.match(
    lines.filter(line => line.message === 'alarm'),
    [{ kind: 'BLOCKED_TARGET', reason }]
  )
  t.match(messages, [{ kind: 'BLOCKED_TARGET', deliveries: [{ reason }] }])
})
