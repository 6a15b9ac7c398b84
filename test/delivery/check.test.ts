// The check-back: Ackbox asks a real producer over HTTP and acts on its answer.
import { brotliCompressSync, gzipSync } from 'node:zlib'
import { Webhook } from 'standardwebhooks'
import t from 'tap'
import { listAlarms } from '../../src/db/lists.ts'
import { claimChecks } from '../../src/db/prepared.ts'
import { signingSecret } from '../../src/domain/tokens.ts'
import type { LoadedHandler } from '../../src/handler/loaded.ts'
import { scriptedChannel, told } from '../support/channels.ts'
import { only } from '../support/only.ts'
import { readsOf } from '../support/postgres.ts'
import { weirdNames, weirdValues } from '../support/weird-values.ts'
import { halfStory, halves, producer, type Producer, type Reply } from '../support/halves.ts'

t.setTimeout(600_000)

/** ms from the last check to the next, by the database's clock. */
async function waitOf(half: Awaited<ReturnType<typeof halfStory>>['half'], taskNo: string): Promise<number> {
  const [row] = await half.deps.sql<[{ ms: number }]>`
    select extract(epoch from p.next_action_at - p.last_checked_at)::float8 * 1000 as ms
    from prepared p join task t on t.id = p.task_id where t.task_no = ${taskNo}`
  return row.ms
}

t.test(
  'a producer that says nothing is asked after its time, by a signed request, and its word is done',
  async t => {
    const shop = await producer(t, check => (check.taskNo === 'yes' ? 'COMMITTED' : 'ROLLED_BACK'))
    const { story, half } = await halfStory(t, shop.url)
    await half.prepare({ taskNo: 'yes', sceneType: 'vip' })
    await half.prepare({ taskNo: 'no' })
    await half.look()
    t.equal(shop.checks.length, 0, 'not before its time')
    await story.later('35 s')
    await half.look()
    await story.quiet()
    t.equal(shop.checks.length, 2)
    const check = shop.checks.find(one => one.taskNo === 'yes')
    if (!check) return t.fail('yes was asked about')
    const body = JSON.parse(check.body) as { preparedAt: string }
    t.match(body, {
      taskNo: 'yes',
      messageCode: 'order.paid',
      sceneType: 'vip',
      check: 1,
      preparedAt: String
    })
    t.equal(check.headers['ackbox-prepared-at'], body.preparedAt)
    const headers = check.headers as Record<string, string>
    const secret = signingSecret('a test secret', 'check:order.paid')
    t.same(
      new Webhook(secret).verify(check.body, headers),
      body,
      'as any Standard Webhooks library checks it'
    )
    t.throws(() => new Webhook(signingSecret('a test secret', 'warehouse')).verify(check.body, headers))
    t.match(await story.read('yes'), {
      status: 'HANDLED',
      prepared: { endedBy: 'check:1', lastAnswer: 'COMMITTED', checks: 1 }
    })
    t.match(await story.read('no'), {
      status: 'CANCELLED',
      prepared: { endedBy: 'check:1', lastAnswer: 'ROLLED_BACK' }
    })
    t.same(
      story.downstream.requests.map(one => one.taskNo),
      ['yes']
    )
    await story.later('1 hour')
    await half.look()
    t.equal(shop.checks.length, 2, 'nobody is asked about what has ended')
    const metrics = await half.metrics.render()
    t.match(metrics, 'ackbox_checks_total{message_code="order.paid",answer="COMMITTED"} 1')
    t.match(
      metrics,
      'ackbox_prepared_ended_total{message_code="order.paid",state="ROLLED_BACK",by="check"} 1'
    )
    t.match(metrics, /ackbox_prepared_tasks \d/)
  }
)

t.test('UNKNOWN commits nothing: it is asked again at the same interval, as often as it takes', async t => {
  const shop = await producer(t)
  const { story, half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare({ prepared: { checkAfterMs: 5_000 } })
  for (let n = 1; n <= 3; n++) {
    await story.later('5 s')
    await half.look()
    t.match(await half.brief(taskNo), { status: 'PREPARED', prepared: { checks: n, lastAnswer: 'UNKNOWN' } })
    t.equal(await waitOf(half, taskNo), 5_000)
  }
  shop.answer = () => 'COMMITTED'
  await story.later('5 s')
  await half.look()
  await story.quiet()
  t.match(await story.read(taskNo), { status: 'HANDLED', prepared: { checks: 4 } })
})

t.test('an answer counts in each form that HTTP allows: behind 100, compressed, in pieces', async t => {
  const committed = '{"state":"COMMITTED"}'
  const forms: Producer['answer'][] = [
    () => ({ status: 200, body: committed, before: '100 Continue' }),
    () => ({ status: 200, body: gzipSync(committed), headers: { 'content-encoding': 'gzip' } }),
    () => ({ status: 200, body: brotliCompressSync(committed), headers: { 'content-encoding': 'br' } }),
    () => ({ status: 200, body: committed, headers: { 'transfer-encoding': 'chunked' } })
  ]
  const shop = await producer(t)
  const { story, half } = await halfStory(t, shop.url)
  for (const form of forms) {
    const taskNo = await half.prepare()
    shop.answer = form
    await story.later('1 hour')
    await half.look()
    await story.quiet()
    t.match(await story.read(taskNo), { status: 'HANDLED', prepared: { checks: 1 } }, String(form))
  }
})

t.test('whatever is not 200 and a state says nothing, and ends nothing', async t => {
  const shop = await producer(t)
  const { story, half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare()
  const say =
    (status: number, body: string): Producer['answer'] =>
    () => ({ status, body })
  const committed = '{"state":"COMMITTED"}'
  const table: [answer: Producer['answer'], reason: RegExp][] = [
    [say(409, committed), /http_409/],
    [say(410, committed), /http_410/],
    [say(425, ''), /http_425/],
    [say(500, committed), /http_500/],
    [say(503, ''), /http_503/],
    [say(302, committed), /http_302/],
    [say(201, committed), /state/],
    [say(204, ''), /state/],
    [say(200, ''), /state/],
    [say(200, 'COMMITTED'), /state/],
    [say(200, '"COMMITTED"'), /state/],
    [say(200, 'null'), /state/],
    [say(200, '[]'), /state/],
    [say(200, '{"state":"committed"}'), /state/],
    [say(200, '{"state":true}'), /state/],
    [say(200, '{"state":["COMMITTED"]}'), /state/],
    [say(200, '{"dtm_result":"SUCCESS"}'), /state/],
    [say(200, '{"state":"ROLLED_BACK","state":"COMMITTED"}'), /state/],
    [say(200, '{"state":"COMMITTED","at":1e400}'), /state/],
    [say(200, `{"state":"COMMITTED"${' '.repeat(70_000)}}`), /./]
  ]
  for (const [index, [answer, reason]] of table.entries()) {
    shop.answer = answer
    await story.later('1 hour')
    await half.look()
    t.match(
      await half.brief(taskNo),
      { status: 'PREPARED', prepared: { checks: index + 1, lastAnswer: 'NONE', lastReason: reason } },
      `row ${index}: ${reason}`
    )
  }
  t.equal(story.logged('check.done').length, table.length)
})

t.test(
  'a producer that is away is asked less and less often, and one UNKNOWN brings its interval back',
  async t => {
    const shop = await producer(t, () => ({ status: 503, body: '' }))
    const { story, half } = await halfStory(t, shop.url)
    const taskNo = await half.prepare({ prepared: { checkAfterMs: 5_000 } })
    const waits: number[] = []
    for (let n = 0; n < 4; n++) {
      await story.later('5 minutes')
      await half.look()
      waits.push(await waitOf(half, taskNo))
    }
    t.same(waits, [10_000, 20_000, 40_000, 80_000])
    shop.answer = () => 'UNKNOWN'
    await story.later('5 minutes')
    await half.look()
    t.equal(await waitOf(half, taskNo), 5_000)
    shop.answer = () => ({ status: 503, body: '' })
    await story.later('5 minutes')
    await half.look()
    t.equal(await waitOf(half, taskNo), 10_000, 'and it begins anew')
  }
)

t.test(
  'after 15 times UNKNOWN one alarm says so; it is asked once an hour, and the alarm ends with it',
  async t => {
    const shop = await producer(t)
    const { story, half } = await halfStory(t, shop.url)
    const taskNo = await half.prepare()
    const alarms = async () => {
      const found = await listAlarms(readsOf(t, story.sql), {
        messageCodes: null,
        from: new Date(0),
        limit: 10
      })
      return found === 'bad_cursor' ? [] : found.alarms
    }
    for (let n = 1; n <= 14; n++) {
      await story.later('35 s')
      await half.look()
    }
    t.same(await alarms(), [])
    for (let n = 15; n <= 17; n++) {
      await story.later('1 hour')
      await half.look()
      t.equal(await waitOf(half, taskNo), 3_600_000)
    }
    t.match(
      await alarms(),
      only({
        taskNo,
        kind: 'PREPARED_STUCK',
        status: 'PREPARED',
        downstream: '',
        reason: 'UNKNOWN',
        sentAt: undefined
      })
    )
    const channel = scriptedChannel()
    await told(story, channel)
    t.match(
      channel.messages,
      only({ kind: 'PREPARED_STUCK', count: 1, deliveries: only({ taskNo, reason: 'UNKNOWN' }) })
    )
    await half.rollBack(taskNo)
    t.match(await alarms(), only({ status: 'CANCELLED', resolvedAt: String }))
  }
)

t.test('a day without an answer is an alarm too, and a commit resolves it', async t => {
  const shop = await producer(t, () => ({ status: 500, body: '' }))
  const { story, half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare()
  await story.later('24 hours')
  await half.look()
  const reads = readsOf(t, story.sql)
  const list = () => listAlarms(reads, { messageCodes: null, from: new Date(0), limit: 10 })
  t.match(await list(), { alarms: only({ kind: 'PREPARED_STUCK', reason: 'http_500' }) })
  await half.commit(taskNo)
  await story.quiet()
  t.match(await list(), { alarms: only({ status: 'HANDLED', resolvedAt: String }) })
})

t.test('two processes never ask at once, and what one of them claimed and lost is asked again', async t => {
  let open = 0
  let atOnce = 0
  const shop = await producer(t, async (): Promise<Reply> => {
    atOnce = Math.max(atOnce, ++open)
    await new Promise(resolve => setImmediate(resolve))
    open--
    return 'UNKNOWN'
  })
  const { story, half } = await halfStory(t, shop.url)
  const other = halves(t, story)
  const taskNo = await half.prepare()
  for (let n = 0; n < 20; n++) {
    await story.later('35 s')
    await Promise.all([half.look(), other.look(), half.check(taskNo)])
  }
  t.equal(atOnce, 1)
  const before = shop.checks.length
  // A process that dies during a check leaves a lease behind.
  await story.later('1 hour')
  const lease = { codes: ['order.paid'], room: 10, orphans: 10, leaseMs: 15_000 }
  const rooms = [{ messageCode: 'order.paid', room: 10 }]
  const [lost] = await claimChecks(story.sql, rooms, lease)
  t.equal(lost?.task.taskNo, taskNo)
  await half.look()
  t.match(await half.check(taskNo), { status: 'PREPARED' }, 'asked for by hand it is shown as it is')
  t.equal(shop.checks.length, before, 'while the lease runs nobody else asks')
  await story.later('15 s')
  await half.look()
  t.equal(shop.checks.length, before + 1)
})

t.test('what it says too late changes nothing: the commit was there first', async t => {
  let reply = (): void => {}
  const held = new Promise<void>(resolve => {
    reply = resolve
  })
  const shop = await producer(t, async (): Promise<Reply> => {
    await held
    return 'ROLLED_BACK'
  })
  const { story, half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare()
  await story.later('35 s')
  const looking = half.look()
  await shop.checked(1)
  await half.commit(taskNo)
  reply()
  await looking
  await story.quiet()
  t.equal((await story.read(taskNo)).status, 'HANDLED')
  t.equal(story.logged('check.stale').length, 1)
})

t.test('who asks for a check that loses to a rollback is shown what came of it', async t => {
  let reply = (): void => {}
  const held = new Promise<void>(resolve => {
    reply = resolve
  })
  const shop = await producer(t, async (): Promise<Reply> => {
    await held
    return 'COMMITTED'
  })
  const { story, half } = await halfStory(t, shop.url)
  const taskNo = await half.prepare()
  const asking = half.check(taskNo)
  await shop.checked(1)
  await half.rollBack(taskNo)
  reply()
  t.match(await asking, { status: 'CANCELLED' })
  t.equal(story.logged('check.stale').length, 1)
  t.equal(await half.check(taskNo), 'rolled_back', 'asked once more, nobody is asked')
  t.equal(story.downstream.requests.length, 0)
})

t.test(
  'a producer that hangs holds up neither those of other messageCodes nor those behind it for ever',
  async t => {
    const shop = await producer(t, check =>
      check.headers['ackbox-message-code'] === 'order.paid' ? 'hang' : 'COMMITTED'
    )
    const { story, half } = await halfStory(t, shop.url)
    const handler = story.handlers.get('order.paid')
    if (!handler) return t.fail('there is a handler')
    const moved: LoadedHandler = { ...handler, messageCode: 'stock.moved' }
    story.handlers.set('stock.moved', moved)
    const both = halves(t, story)
    for (let n = 0; n < 40; n++) await half.prepare()
    const other = await half.prepare({ messageCode: 'stock.moved' })
    await story.later('35 s')
    await both.checker.look()
    await shop.checked(17)
    t.equal(
      shop.checks.filter(one => one.taskNo !== other).length,
      16,
      'no more than 16 at once of one messageCode'
    )
    await both.checker.idle()
    t.not((await half.brief(other)).status, 'PREPARED')
    const [{ none }] = await story.sql<[{ none: number }]>`
    select count(*)::int as none from prepared where last_answer = 'NONE' and last_reason = 'timeout'`
    t.equal(none, 16)
  }
)

t.test(
  'a handler that throws, hangs up or asks where nobody may go gets no answer, and says why',
  async t => {
    const shop = await producer(t, () => 'COMMITTED')
    const { story, half } = await halfStory(t, shop.url)
    const handler = story.handlers.get('order.paid')
    if (!handler) return t.fail('there is a handler')
    const taskNo = await half.prepare()
    const wrong: [LoadedHandler['checkBack'], RegExp][] = [
      [
        () => {
          throw new Error('no such shop')
        },
        /checkBack threw: no such shop/
      ],
      [async () => Promise.reject(new Error('later')), /checkBack threw: later/],
      [(() => undefined) as never, /no \{ url \}/],
      [() => Object.assign({ url: shop.url }, { body: 'mine' }), /no member body/],
      [() => ({ url: shop.url, headers: { 'webhook-id': 'forged' } }), /must not set the header webhook-id/],
      [() => ({ url: 'http://169.254.169.254/latest' }), /blocked/],
      [() => ({ url: 'ftp://shop.test/' }), /./],
      [() => ({ url: 'http://127.0.0.1:9/' }), /./]
    ]
    for (const [checkBack, reason] of wrong) {
      if (checkBack) handler.checkBack = checkBack
      await story.later('2 hours')
      await half.look()
      t.match(await half.brief(taskNo), {
        status: 'PREPARED',
        prepared: { lastAnswer: 'NONE', lastReason: reason }
      })
    }
    t.equal(shop.checks.length, 0)
    handler.checkBack = async () => ({ url: shop.url, headers: { authorization: 'Bearer shop' } })
    await story.later('2 hours')
    await half.look()
    t.match(shop.checks, only({ headers: { authorization: 'Bearer shop' } }))
  }
)

t.test(
  'whatever a checkBack throws or returns, the check is recorded, the next one waits longer, and an alarm comes',
  async t => {
    const hooks = weirdNames.flatMap(name => [
      () => {
        throw weirdValues[name]()
      },
      () => weirdValues[name]() as never,
      () => ({ url: weirdValues[name]() as never }),
      () => ({ url: 'http://127.0.0.1:1/', headers: weirdValues[name]() as never })
    ])
    let hook = hooks[0]
    const { story, half } = await halfStory(t, 'http://127.0.0.1:9/')
    const handler = story.handlers.get('order.paid')
    if (handler) handler.checkBack = () => (hook as () => never)()
    const taskNo = await half.prepare()
    for (const [n, one] of hooks.entries()) {
      hook = one
      await story.later('2 hours')
      await half.look()
      const { prepared } = await story.read(taskNo)
      t.match(prepared, { checks: n + 1, lastAnswer: 'NONE' }, String(one))
    }
    t.same(story.logged('check.failed'), [])
    t.match(await story.sql`select kind from alarm`, only({ kind: 'PREPARED_STUCK' }))
    t.ok((await waitOf(half, taskNo)) > 1_000_000, 'it has become less frequent')
  }
)

t.test('of a messageCode that nobody handles any more a person hears, and nothing is lost', async t => {
  const shop = await producer(t)
  const { story, half } = await halfStory(t, shop.url)
  const elsewhere = halves(t, story, new Map())
  const taskNo = await half.prepare()
  await story.later('80 s')
  await elsewhere.look()
  t.match(await half.brief(taskNo), { prepared: { checks: 0 } }, 'those who know it have a minute')
  await story.later('24 hours')
  await elsewhere.look()
  t.match(await half.brief(taskNo), {
    status: 'PREPARED',
    prepared: { lastReason: /no handler of this process/ }
  })
  const [alarm] = await story.sql`select from alarm where kind = 'PREPARED_STUCK'`
  t.ok(alarm)
  t.equal(shop.checks.length, 0)
})
