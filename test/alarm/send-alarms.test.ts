import t from 'tap'
import { forgetChannels, sendDueMessage } from '../../src/alarm/send-alarms.ts'
import { raiseAgain } from '../../src/db/alarms.ts'
import { claimAlarmGroup, sweepAlarmSends } from '../../src/db/alarm-sends.ts'
import { removeNode, writeNode } from '../../src/db/cluster.ts'
import type { AlarmChannels } from '../../src/db/cluster-tables.ts'
import { listAlarms } from '../../src/db/lists.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { Outcome } from '../../src/domain/types.ts'
import { only } from '../support/only.ts'
import { taskRequest } from '../support/task-request.ts'
import { laterForChannels, scriptedChannel, told } from '../support/channels.ts'
import { delivered, failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'

const unsent = async (sql: Sql): Promise<number> =>
  (await sql`select from alarm where sent_at is null`).length

/** Inserts FAILED deliveries, their tasks and their alarms. */
async function failures(sql: Sql, count: number, downstream = 'warehouse', from = 0): Promise<void> {
  await sql`
    with tasks as (
      insert into task (id, task_no, message_code, scene_type, message_body, content_hash, created_by)
      select gen_random_uuid(), ${downstream} || ':' || n, 'order.paid', '', '{}', '', 'test'
      from generate_series(${from + 1}::int, ${from + count}::int) n
      returning id
    ), deliveries as (
      insert into delivery (task_id, downstream, status, attempt, tries_left, needs_receipt, reason)
      select id, ${downstream}, 2, 1, 0, false, 'SEND_EXHAUSTED' from tasks
    )
    insert into alarm (task_id, downstream, attempt, kind) select id, ${downstream}, 1, 'FAILED' from tasks`
}

t.test(
  '10,000 that fail at once become a bounded number of messages, and none is lost from the list',
  async t => {
    const { sql, log, lines } = await setup(t)
    await failures(sql, 10_000)
    const channel = scriptedChannel()
    await told({ sql, log }, channel)
    t.equal(channel.messages.length, 1)
    t.equal(channel.messages[0]?.count, 10_000)
    t.equal(channel.messages[0]?.deliveries.length, 100)
    t.equal(await unsent(sql), 0)
    t.equal((await sql`select from alarm_send`).length, 0, 'nothing is owed any more')
    t.equal(lines.filter(line => line.message === 'alarm').length, 10_000)
  }
)

t.test('the first is told at once, the others in a digest, and each downstream for itself', async t => {
  const { sql, log } = await setup(t)
  const channel = scriptedChannel()
  const seen = (): [string, number][] => channel.messages.map(one => [one.downstream, one.count])
  await failures(sql, 1)
  await told({ sql, log }, channel)
  await failures(sql, 20, 'warehouse', 1)
  await failures(sql, 1, 'points')
  await told({ sql, log }, channel)
  t.same(seen(), [
    ['warehouse', 1],
    ['points', 1]
  ])
  await laterForChannels(sql, '20 s')
  await told({ sql, log }, channel)
  t.equal(channel.messages.length, 2)
  await laterForChannels(sql, '11 s')
  await told({ sql, log }, channel)
  t.same(seen().slice(2), [['warehouse', 20]])
  t.equal(await unsent(sql), 0)
})

t.test('what fails for good is heard of: what, where and why', async t => {
  const { post, downstream, quiet, sql, log, lines } = await setup(t)
  downstream.usual = failed
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  const channel = scriptedChannel()
  await told({ sql, log }, channel)
  t.match(
    channel.messages,
    only({
      type: 'ackbox.alarm',
      downstream: 'warehouse',
      kind: 'FAILED',
      count: 1,
      deliveries: only({ taskNo, messageCode: 'order.paid', attempt: 1, reason: 'SEND_EXHAUSTED' })
    })
  )
  t.match(
    lines.filter(line => line.message === 'alarm'),
    only({ taskNo, kind: 'FAILED', reason: 'SEND_EXHAUSTED' })
  )
})

t.test('a rule says who hears what; what nobody wants is heard of by the log', async t => {
  const { sql, log, lines } = await setup(t)
  await failures(sql, 1)
  await failures(sql, 1, 'points')
  const channels = [
    scriptedChannel({ name: 'a', rule: { downstreams: ['points'] } }),
    scriptedChannel({ name: 'b', rule: { kinds: ['TLS'] } }),
    scriptedChannel({ name: 'c', rule: { messageCodes: ['order.paid'], kinds: ['TLS', 'FAILED'] } }),
    scriptedChannel({ name: 'd', rule: { messageCodes: ['stock.moved'] } })
  ]
  await told({ sql, log }, ...channels)
  t.same(
    channels.map(one => one.messages.map(message => message.downstream).toSorted()),
    [['points'], [], ['points', 'warehouse'], []]
  )
  await failures(sql, 1, 'third')
  await told({ sql, log }, ...channels.slice(0, 2))
  t.equal(await unsent(sql), 0)
  t.equal(lines.filter(line => line.message === 'alarm').length, 3)
})

t.test('a channel that is broken keeps its own, and disturbs no other', async t => {
  const { accept, downstream, quiet, sql, log, lines } = await setup(t, {
    downstreams: { points: {}, warehouse: {} }
  })
  downstream.usual = failed
  await accept.many([taskRequest({ retryTimes: 1 }), taskRequest({ retryTimes: 1 })])
  await quiet()
  const broken = scriptedChannel({ name: 'broken', answer: () => ({ reason: 'dns: ENOTFOUND' }) })
  const well = scriptedChannel({ name: 'well' })
  const clock = async () => {
    const [row] = await sql<[{ s: number }]>`select extract(epoch from clock_timestamp())::float8 as s`
    return row.s
  }
  /** Since when and until when the last messages were sent. */
  let sent: [from: number, to: number] = [0, 0]
  const send = async () => {
    const from = await clock()
    await told({ sql, log }, broken, well)
    sent = [from, await clock()]
  }
  await send()
  t.same(well.messages.map(one => `${one.downstream} ${one.count}`).toSorted(), ['points 2', 'warehouse 2'])
  t.equal(await unsent(sql), 0, 'somebody heard of them')
  t.match(
    lines.find(line => line.message === 'alarm.send_failed'),
    { channel: 'broken', kind: 'FAILED', reason: 'dns: ENOTFOUND', tries: 1 }
  )
  for (const wanted of [2, 4, 8, 16, 32, 60, 60]) {
    const again = await sql<{ s: number }[]>`
      select extract(epoch from next_action_at)::float8 as s from alarm_group where channel = 'broken'`
    t.equal(again.length, 2)
    const [from, to] = sent
    for (const { s } of again)
      t.ok(from + wanted <= s && s <= to + wanted, `tried again after ${wanted} s: ${s - to} to ${s - from}`)
    await laterForChannels(sql, '61 s')
    await send()
  }
  t.equal(well.messages.length, 2)
  broken.answer = () => true
  await laterForChannels(sql, '61 s')
  await told({ sql, log }, broken, well)
  t.same(
    broken.messages.map(one => one.count),
    [2, 2],
    'and nothing was lost'
  )
})

t.test(
  'a message whose sender died is sent again under the same id, and so by one dispatcher only',
  async t => {
    const { sql, log } = await setup(t)
    await failures(sql, 3)
    const ids: string[] = []
    const dying = scriptedChannel({
      answer(message) {
        ids.push(message.id)
        throw new Error('killed')
      }
    })
    await t.rejects(told({ sql, log }, dying), /killed/)
    const other = scriptedChannel()
    await told({ sql, log }, other)
    t.equal(other.messages.length, 0, 'the lease of the first runs on')
    await laterForChannels(sql, '31 s')
    await Promise.all([told({ sql, log }, other), told({ sql, log }, other), told({ sql, log }, other)])
    t.same(
      other.messages.map(one => [one.id, one.count]),
      [[ids[0], 3]]
    )
  }
)

t.test('a mail is not sent by a second dispatcher while its server may still take it', async t => {
  const { sql, log } = await setup(t)
  await failures(sql, 1)
  const dying = scriptedChannel({ kind: 'mail', answer: () => Promise.reject(new Error('killed')) })
  await t.rejects(told({ sql, log }, dying), /killed/)
  const other = scriptedChannel({ kind: 'mail' })
  await laterForChannels(sql, '60 s')
  await told({ sql, log }, other)
  t.equal(other.messages.length, 0)
  await laterForChannels(sql, '16 s')
  await told({ sql, log }, other)
  t.equal(other.messages.length, 1)
})

t.test('an alarm that is raised anew after its end is a message with a new id', async t => {
  const { sql, log } = await setup(t)
  const channel = scriptedChannel()
  await failures(sql, 1)
  await told({ sql, log }, channel)
  await sql`update alarm set resolved_at = now()`
  await laterForChannels(sql, '31 s')
  await sql`insert into alarm (task_id, downstream, attempt, kind) select task_id, downstream, attempt, kind from alarm
    ${raiseAgain(sql)}`
  await told({ sql, log }, channel)
  t.equal(channel.messages.length, 2)
  t.not(channel.messages[0]?.id, channel.messages[1]?.id, 'a receiver that deduplicates takes both')
})

t.test('an incident that is over is told once, and what comes later is a new one', async t => {
  const { sql, log } = await setup(t)
  const channel = scriptedChannel({ sendResolved: true })
  const plain = scriptedChannel({ name: 'plain' })
  const after = async (): Promise<void> => {
    await laterForChannels(sql, '31 s')
    await told({ sql, log }, channel, plain)
  }
  await failures(sql, 2)
  await told({ sql, log }, channel, plain)
  await sql`update alarm set resolved_at = now() where task_id = (select task_id from alarm limit 1)`
  await after()
  t.equal(channel.messages.length, 1, 'one of the two is open still')
  await sql`update alarm set resolved_at = now()`
  await after()
  await after()
  t.same(
    channel.messages.map(one => one.type),
    ['ackbox.alarm', 'ackbox.alarm.resolved']
  )
  t.equal((await sql`select from alarm_send`).length, 0)
  await failures(sql, 1, 'warehouse', 2)
  await after()
  t.same(
    channel.messages.map(one => [one.type, one.count]),
    [
      ['ackbox.alarm', 2],
      ['ackbox.alarm.resolved', 0],
      ['ackbox.alarm', 1]
    ]
  )
  t.equal(plain.messages.length, 2, 'a channel that does not ask for it hears of no end')
})

t.test('with a steady trickle of alarms only what is open is kept, and counted when told again', async t => {
  const { sql, log } = await setup(t)
  const channel = scriptedChannel({ kind: 'alertmanager', sendResolved: true })
  const kept = async () => (await sql`select from alarm_send`).length
  for (let n = 0; n < 5; n++) {
    await failures(sql, 10, 'warehouse', n * 10)
    await told({ sql, log }, channel)
    // One alarm stays open: the incident goes on.
    await sql`update alarm set resolved_at = now()
      where task_id <> (select id from task where task_no = 'warehouse:1') and sent_at is not null`
    await laterForChannels(sql, '31 s')
  }
  await told({ sql, log }, channel)
  t.equal(await kept(), 1)
  await laterForChannels(sql, '301 s')
  await told({ sql, log }, channel)
  t.same(
    channel.messages.map(one => one.count),
    [10, 10, 10, 10, 10, 1]
  )
  await sql`delete from alarm`
  await laterForChannels(sql, '301 s')
  await told({ sql, log }, channel)
  t.equal(channel.messages.at(-1)?.type, 'ackbox.alarm.resolved')
  t.equal(await kept(), 0)
})

t.test('whether an incident is over is found without reading all that was told', async t => {
  const { sql, log } = await setup(t)
  await failures(sql, 5_000)
  await told({ sql, log }, scriptedChannel({ sendResolved: true }))
  await sql`update alarm set resolved_at = now() where task_id <> (select max(task_id::text)::uuid from alarm)`
  await laterForChannels(sql, '31 s')
  /** The rows of both tables that a statement reads. */
  const rowsRead = (work: (sql: Sql) => Promise<unknown>): Promise<number> =>
    sql.begin(async transaction => {
      const read = async () => {
        // It holds what this session has not reported yet.
        const [row] = await transaction<[{ rows: number }]>`
          select sum(seq_tup_read + idx_tup_fetch)::int as rows
          from pg_stat_xact_user_tables where relname in ('alarm', 'alarm_send')`
        return row.rows
      }
      const before = await read()
      await work(transaction as unknown as Sql)
      return (await read()) - before
    })
  const limits = { burst: 1_000, everyMs: 1, leaseMs: 15_000, repeatMs: null, sendResolved: true }
  const claimed = await rowsRead(one => claimAlarmGroup(one, 'ops', limits))
  t.ok(claimed < 10, `${claimed} rows were read`)
  const swept = await rowsRead(one => sweepAlarmSends(one, 100, null))
  // 4 for each of the 100, of 10,000 in all. Once it was 402.
  t.ok(swept >= 100 && swept < 450, `${swept} rows were read`)
})

t.test('an incident whose alarms are all resolved is not told again before its end is', async t => {
  const { sql, log } = await setup(t)
  const channel = scriptedChannel({ kind: 'alertmanager', sendResolved: true })
  const deps = { sql, log, metrics: { alarmSent() {} }, signal: new AbortController().signal }
  await failures(sql, 2)
  await told({ sql, log }, channel)
  await sql`update alarm set resolved_at = now()`
  await laterForChannels(sql, '301 s')
  await sendDueMessage(deps, channel) // before the sweep
  t.equal(channel.messages.length, 1)
  await laterForChannels(sql, '2 s')
  await told({ sql, log }, channel)
  t.match(channel.messages, only({ type: 'ackbox.alarm', count: 2 }, { type: 'ackbox.alarm.resolved' }))
})

t.test('an Alertmanager is told again what is open, since it forgets', async t => {
  const { sql, log } = await setup(t)
  const channel = scriptedChannel({ kind: 'alertmanager', sendResolved: true })
  await failures(sql, 3)
  await told({ sql, log }, channel)
  await sql`update alarm set resolved_at = now() where task_id = (select task_id from alarm limit 1)`
  await laterForChannels(sql, '290 s')
  await told({ sql, log }, channel)
  t.equal(channel.messages.length, 1)
  await laterForChannels(sql, '11 s')
  await told({ sql, log }, channel)
  t.same(
    channel.messages.map(one => one.count),
    [3, 2]
  )
})

t.test('a channel that was renamed leaves its alarms to the others', async t => {
  const { sql, log, logged } = await setup(t)
  await failures(sql, 2)
  const away = scriptedChannel({ name: 'old', answer: () => ({ reason: 'timeout' }) })
  await told({ sql, log }, away)
  const fresh = scriptedChannel({ name: 'new' })
  await forgetChannels({ sql, log }, [away])
  t.same(logged('alarm.released'), [])
  await forgetChannels({ sql, log }, [fresh])
  t.match(logged('alarm.released'), only({ released: 2 }))
  await told({ sql, log }, fresh)
  t.same(
    fresh.messages.map(one => one.count),
    [2]
  )
  t.equal(await unsent(sql), 0)
})

const dispatcherWith = (id: string, channels: AlarmChannels) => ({
  id,
  roles: 'dispatcher',
  version: '1',
  handles: [],
  channels
})

t.test('a channel is kept as long as a live process has it, and forgotten after that', async t => {
  const { sql, log } = await setup(t)
  const fresh = scriptedChannel({ name: 'new' })
  const old = scriptedChannel({ name: 'old', answer: () => ({ reason: 'timeout' }) })
  await writeNode(sql, dispatcherWith('old', { old: {} }))
  await failures(sql, 1)
  // A process of before the deployment goes on, with its own channel only.
  await told({ sql, log }, old)
  await forgetChannels({ sql, log }, [fresh])
  t.equal((await sql`select from alarm_send`).length, 1, 'that process may send it yet')
  await removeNode(sql, 'old')
  await forgetChannels({ sql, log }, [fresh])
  await told({ sql, log }, fresh)
  t.same(
    fresh.messages.map(one => one.count),
    [1]
  )
  await writeNode(sql, { id: 'older', roles: 'dispatcher', version: '0' })
  await forgetChannels({ sql, log }, [])
  t.equal((await sql`select from alarm_group`).length, 1, 'an older version may have it')
})

t.test('a process without a channel leaves its alarms to the process that has it', async t => {
  const { sql, log } = await setup(t)
  const ops = scriptedChannel()
  await writeNode(sql, dispatcherWith('one', { ops: { downstreams: ['warehouse'] } }))
  await writeNode(sql, dispatcherWith('two', {}))
  await failures(sql, 1)
  await failures(sql, 1, 'points')
  await told({ sql, log })
  t.equal(await unsent(sql), 1, 'only the alarm that no channel wants counts as sent')
  await forgetChannels({ sql, log }, [])
  await told({ sql, log }, ops)
  t.match(ops.messages, only({ downstream: 'warehouse', count: 1 }))
})

t.test('a channel with many alarms is forgotten in steps', async t => {
  const { sql, log, logged } = await setup(t)
  await failures(sql, 2_500)
  await told({ sql, log }, scriptedChannel({ name: 'old', answer: () => ({ reason: 'timeout' }) }))
  await forgetChannels({ sql, log }, [])
  t.match(logged('alarm.released'), only({ released: 2_500 }))
  for (const table of ['alarm_send', 'alarm_group', 'alarm_channel'])
    t.equal((await sql`select from ${sql(table)}`).length, 0, table)
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
  const { sql, reads, log, post, quiet, later, dispatch, downstream, lines } = await setup(t)
  const reason = 'probe: blocked_target: to allow it set EGRESS_ALLOW=127.0.0.1:8090'
  downstream.next(failed, { kind: 'failed', alarm: 'BLOCKED_TARGET', reason }, failed)
  await post()
  for (let n = 0; n < 2; n++) {
    await quiet()
    await later('70 s')
    await dispatch()
  }
  await quiet()
  const channel = scriptedChannel()
  await told({ sql, log }, channel)
  t.match(
    lines.filter(line => line.message === 'alarm'),
    only({ kind: 'BLOCKED_TARGET', reason })
  )
  const listed = await listAlarms(reads, { limit: 10, from: new Date(0), messageCodes: null })
  t.match(
    listed,
    { alarms: only({ kind: 'BLOCKED_TARGET', reason }) },
    'neither the attempt before nor the one after'
  )
  t.match(channel.messages, only({ kind: 'BLOCKED_TARGET', deliveries: only({ reason }) }))
})
