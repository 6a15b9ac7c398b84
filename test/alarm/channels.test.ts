// Every channel against a fake of its vendor, and mail against a real SMTP server.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { mock } from 'node:test'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { parseChannel } from '../../src/alarm/channel-config.ts'
import { openChannels } from '../../src/alarm/open-channels.ts'
import type { AlarmChannel, AlarmMessage, Sent } from '../../src/alarm/types.ts'
import { laterForChannels, told } from '../support/channels.ts'
import { only } from '../support/only.ts'
import { setup } from '../support/setup.ts'
import { channelUrl, secrets, vendor, type VendorName } from '../support/vendors.ts'
import { smtpServer } from '../support/smtp.ts'

const names: VendorName[] = ['dingtalk', 'feishu', 'wecom', 'slack', 'pagerduty', 'alertmanager', 'webhook']

const message = (more: Partial<AlarmMessage> = {}): AlarmMessage => ({
  type: 'ackbox.alarm',
  id: 'alarm_1',
  downstream: 'warehouse',
  kind: 'FAILED',
  since: '2026-01-02T03:04:05.000Z',
  count: 1,
  deliveries: [
    {
      taskNo: 'order-1',
      messageCode: 'order.paid',
      attempt: 10,
      reason: 'SEND_EXHAUSTED',
      createdAt: '2026-01-02T03:04:05.678Z'
    }
  ],
  ...more
})

async function opened(t: Test, given: unknown): Promise<AlarmChannel> {
  const config = parseChannel('ops', given)
  if (typeof config === 'string') throw new Error(config)
  const [channel] = await openChannels([config], {
    secret: 'a secret of the tests, long enough to be one',
    publicUrl: 'https://ackbox.test',
    egressAllow: []
  })
  if (!channel) throw new Error('no channel')
  t.teardown(() => channel.close())
  return channel
}
const send = (channel: AlarmChannel, one = message()): Promise<Sent> =>
  channel.send(one, new AbortController().signal)

t.test('the answer of a robot counts in each form that HTTP allows', async t => {
  const server = createServer((_request, response) => {
    response.writeContinue()
    response.writeHead(200, { 'content-encoding': 'gzip' }).end(gzipSync('{"errcode":0,"errmsg":"ok"}'))
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  t.equal(await send(await opened(t, `dingtalk+http://127.0.0.1:${port}/robot?access_token=1`)), true)
})

for (const name of names) {
  t.test(`${name}: its own end takes a message, which says what, where and why`, async t => {
    const end = await vendor(t, name)
    const channel = await opened(t, channelUrl(name, end))
    t.equal(channel.kind, name)
    t.equal(await send(channel), true, end.refused.join())
    for (const word of ['warehouse', 'FAILED', 'order-1', 'order.paid', 'SEND_EXHAUSTED'])
      t.match(end.taken[0], word)
    t.notMatch(end.taken[0], 'canary', 'no secret is in what people read')
  })

  t.test(`${name}: a secret that is wrong is no success, and is not repeated`, async t => {
    const end = await vendor(t, name)
    const wrong = channelUrl(name, end).replace(/canary|whsec_YSB|me:canary/, text => text.replace(/.$/, 'X'))
    const url = ['wecom', 'slack', 'feishu'].includes(name)
      ? wrong.replace('canary-token', 'canary-tokeX')
      : wrong
    t.not(url, channelUrl(name, end))
    const sent = await send(await opened(t, url))
    t.not(sent, true)
    t.same(end.taken, [])
    t.notMatch(JSON.stringify(sent), /7c1e8f0a9b2d4c6e|0123456789abcdef|canary-pass/)
  })

  t.test(`${name}: what callers wrote neither breaks the format nor mentions anybody`, async t => {
    const end = await vendor(t, name)
    const taskNo = '<!channel> <at user_id="all">x</at> @all \n- forged \u2028 " \\ 任务 😀'.repeat(3)
    const deliveries = Array.from({ length: 100 }, () => ({ ...message().deliveries[0]!, taskNo }))
    t.equal(
      await send(await opened(t, channelUrl(name, end)), message({ count: 20_000, deliveries })),
      true,
      end.refused.join()
    )
    if (['dingtalk', 'feishu', 'wecom', 'slack'].includes(name)) {
      t.notMatch(end.taken[0], /<!channel>|<at |@all|^- forged/m)
      t.match(end.taken[0], /and 199\d\d more|还有 199\d\d 个/)
      t.match(end.taken[0], 'https://ackbox.test/ui/alarms?kind=')
    }
  })

  t.test(`${name}: what callers wrote is no link, and nothing in it is hidden`, async t => {
    const end = await vendor(t, name)
    const hidden = [
      '\u202e',
      '\u2066',
      '\u200b',
      '\u200f',
      '\u2060',
      '\ufeff',
      '\u00ad',
      '\u{E0041}',
      '\u2028',
      '\u0085'
    ]
    const reason = `[pay](https://evil.example/x) www.evil.example HTTP:\u200b//evil.example mailto:x evil.example ${hidden.join('a')}`
    const deliveries = [
      { ...message().deliveries[0]!, taskNo: 'evil.example', messageCode: 'evil.example', reason }
    ]
    t.equal(
      await send(await opened(t, channelUrl(name, end)), message({ kind: 'REJECTED', deliveries })),
      true
    )
    const taken = end.taken.join('')
    for (const one of hidden) t.notOk(taken.includes(one), `U+${one.codePointAt(0)?.toString(16)}`)
    // The receiver of a webhook is a program: it gets the values as they are.
    if (name === 'webhook')
      return t.match(JSON.parse(taken), { deliveries: [{ taskNo: 'evil.example', reason }] })
    t.notMatch(taken, /evil\.example|https?:\/\/evil|\]\(|mailto:/i)
    if (!['alertmanager', 'pagerduty'].includes(name)) t.match(taken, 'https://ackbox.test/ui/alarms')
  })

  t.test(`${name}: 40 downstreams that fail at once stay within its rate, and all are told`, async t => {
    const { sql, log } = await setup(t)
    const end = await vendor(t, name)
    // The vendor's clock advances together with the database's.
    let passed = 0
    end.now = () => Date.now() + passed
    const channel = await opened(t, channelUrl(name, end))
    await sql`insert into alarm (task_id, downstream, attempt, kind)
      select gen_random_uuid(), 'down-' || n, 1, 'FAILED' from generate_series(1, 40) n`
    await told({ sql, log }, channel)
    for (let n = 0; n < 300 && end.taken.length < 40; n++) {
      passed += 1_000
      await laterForChannels(sql, '1 s')
      await told({ sql, log }, channel)
    }
    t.same(end.refused, [])
    t.equal(new Set(end.taken.map(text => /down-\d+/.exec(text)?.[0])).size, 40)
    t.equal((await sql`select from alarm where sent_at is null`).length, 0)
  })
}

t.test('a vendor that says "too fast" is left alone for as long as it says', async t => {
  const { sql, log } = await setup(t)
  const end = await vendor(t, 'dingtalk')
  const channel = await opened(t, channelUrl('dingtalk', end))
  // Another sender has used up the messages per minute of this robot.
  for (let n = 0; n < 20; n++) await send(channel)
  await sql`insert into alarm (task_id, downstream, attempt, kind) values (gen_random_uuid(), 'a', 1, 'FAILED'), (gen_random_uuid(), 'b', 1, 'FAILED')`
  await told({ sql, log }, channel)
  t.equal(end.refused.length, 1, 'the second group does not even try')
  await laterForChannels(sql, '595 s')
  await told({ sql, log }, channel)
  t.equal(end.refused.length, 1)
  end.now = () => Date.now() + 600_000
  await laterForChannels(sql, '12 s')
  await told({ sql, log }, channel)
  t.equal(end.refused.length, 1)
  t.equal(end.taken.length, 22)
})

t.test(
  'a channel is told in its language: Chinese for the chats of China, English for the others',
  async t => {
    const linesOf = async (given: unknown, end: { taken: string[] }, one = message()): Promise<string[]> => {
      const channel = await opened(t, given)
      t.equal(await send(channel, one), true)
      return end.taken.at(-1)!.split('\n')
    }
    const end = await vendor(t, 'wecom')
    const url = channelUrl('wecom', end)
    t.same(await linesOf(url, end), [
      '[告警] Ackbox：下游 warehouse 有 1 个 FAILED',
      '投递最终失败。下游恢复之后，请重投任务。',
      '- 2026-01-02 03:04:05 order-1（order.paid），第 10 次尝试：SEND_EXHAUSTED',
      '全部未解决的告警：https://ackbox.test/ui/alarms?kind=FAILED&downstream=warehouse'
    ])
    t.same(await linesOf({ url, language: 'en' }, end), [
      '[ALARM] Ackbox: 1 × FAILED for warehouse',
      'The delivery has ended without success. Redeliver the task when the downstream is healthy.',
      '- 2026-01-02 03:04:05 order-1 (order.paid), attempt 10: SEND_EXHAUSTED',
      'All open alarms: https://ackbox.test/ui/alarms?kind=FAILED&downstream=warehouse'
    ])
    const test = await linesOf({ url, language: 'en' }, end, message({ kind: 'TEST', downstream: '' }))
    t.equal(test.at(-1), 'All open alarms: https://ackbox.test/ui/alarms', 'there are no alarms of this kind')
    const over = message({ type: 'ackbox.alarm.resolved', count: 0, deliveries: [] })
    const [title, text] = await linesOf(url, end, over)
    t.equal(title, '[恢复] Ackbox：下游 warehouse 的 FAILED')
    t.match(text, /^自 .* UTC 起，这类告警已全部解决。$/)
    t.equal(
      (await linesOf(url, end, message({ kind: 'TEST', downstream: '' })))[0],
      '[测试] Ackbox：告警渠道测试'
    )
    const languageOf = (given: unknown): unknown => {
      const config = parseChannel('ops', given)
      return typeof config === 'string' ? config : config.language
    }
    t.same(
      [
        'https://oapi.dingtalk.com/robot/send?access_token=x',
        'https://open.feishu.cn/open-apis/bot/v2/hook/x',
        'https://open.larksuite.com/open-apis/bot/v2/hook/x',
        'https://hooks.slack.com/services/x',
        { url: 'https://hooks.slack.com/services/x', language: 'zh' },
        { url: 'https://hooks.slack.com/services/x', language: 'fr' }
      ].map(languageOf),
      ['zh', 'zh', 'en', 'en', 'zh', 'language must be one of en, zh']
    )
  }
)

t.test('Alertmanager cannot be kept from hearing of the end: it would end the alert by itself', t => {
  const url = 'https://alertmanager.test/api/v2/alerts'
  t.match(
    parseChannel('ops', { url, sendResolved: false }),
    /^must not have sendResolved false: Alertmanager ends/
  )
  t.match(parseChannel('ops', { url, sendResolved: true }), { sendResolved: true })
  t.match(parseChannel('ops', { url: `pagerduty+${url}`, secret: 'routing', sendResolved: false }), {
    sendResolved: false
  })
  t.end()
})

t.test('a digest for Alertmanager is not longer than the time after which an open alert is sent again', t => {
  const url = 'https://alertmanager.test/api/v2/alerts'
  t.match(
    parseChannel('ops', { url, digestSeconds: 301 }),
    /^must not have digestSeconds above 300 for Alertmanager/
  )
  t.match(parseChannel('ops', { url, digestSeconds: 300 }), { digestMs: 300_000 })
  t.match(parseChannel('ops', { url: `webhook+${url}`, digestSeconds: 86_400 }), { digestMs: 86_400_000 })
  t.end()
})

t.test('PagerDuty and Alertmanager hear of the end under the same key', async t => {
  for (const name of ['pagerduty', 'alertmanager'] as const) {
    const end = await vendor(t, name)
    const channel = await opened(t, channelUrl(name, end))
    t.equal(channel.sendResolved, true)
    await send(channel)
    await send(channel, message({ type: 'ackbox.alarm.resolved', count: 0, deliveries: [] }))
    const [first, last] = end.taken.map(text => JSON.parse(text))
    if (name === 'pagerduty') {
      t.match(last, { event_action: 'resolve', dedup_key: first.dedup_key })
      t.equal(first.event_action, 'trigger')
    } else {
      t.same(last[0].labels, first[0].labels)
      t.equal(last[0].startsAt, first[0].startsAt)
      t.ok(Date.parse(first[0].endsAt) > Date.now() + 600_000)
      t.ok(Date.parse(last[0].endsAt) <= Date.now())
    }
  }
})

t.test('mail: a real SMTP server takes it, and a message sent again is the same mail', async t => {
  const server = await smtpServer(t, { user: 'ackbox', password: secrets.token, tls: false })
  const query = 'from=Ackbox <ackbox@example.com>&to=ops@example.com,night@example.com&tls=off'
  const url = `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/?${query}`
  const channel = await opened(t, url)
  t.equal(await send(channel), true)
  t.equal(await send(channel), true)
  t.match(
    server.mails,
    only({ user: 'ackbox', from: 'ackbox@example.com', to: only('ops@example.com', 'night@example.com') }, {})
  )
  const [first = { text: '' }, second = { text: '' }] = server.mails
  t.match(first.text, /^Subject: =\?UTF-8\?|^Subject: \[ALARM\] Ackbox/m)
  t.match(first.text, /^Auto-Submitted: auto-generated\r$/m)
  for (const word of ['order-1', 'SEND_EXHAUSTED', 'warehouse']) t.match(first.text, word)
  const idOf = (text: string): string | undefined => /^Message-ID: (.*)\r$/m.exec(text)?.[1]
  t.match(idOf(first.text), /^<.+@example\.com>$/)
  t.equal(idOf(first.text), idOf(second.text))
  t.notMatch(first.text, 'canary')
})

t.test('mail: a recipient that the server refuses is said, and the others get the mail once', async t => {
  const { sql, log, logged } = await setup(t)
  const server = await smtpServer(t, { user: 'ackbox', password: secrets.token, tls: false })
  server.unknown.add('night@example.com')
  const query = 'from=ackbox@example.com&to=ops@example.com,night@example.com&tls=off'
  const channel = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/?${query}`)
  await sql`insert into alarm (task_id, downstream, attempt, kind) values (gen_random_uuid(), 'a', 1, 'FAILED')`
  await told({ sql, log }, channel)
  const reason = 'smtp: not taken for night@example.com: 550 no such mailbox'
  t.match(logged('alarm.send_failed'), only({ channel: 'ops', kind: 'FAILED', reason }))
  await laterForChannels(sql, '61 s')
  await told({ sql, log }, channel)
  t.match(server.mails, only({ to: only('ops@example.com') }))
  t.equal((await sql`select from alarm where sent_at is null`).length, 0)
  server.unknown.add('ops@example.com')
  t.match(await send(channel), { reason: /^smtp: EENVELOPE/, isTaken: undefined }, 'nobody has it')
})

t.test('mail: a server that takes half a minute to take a mail is waited for', async t => {
  const server = await smtpServer(t, { user: 'ackbox', password: secrets.token, tls: false })
  const query = 'from=ackbox@example.com&to=ops@example.com&tls=off'
  const channel = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/?${query}`)
  server.taking = () => mock.timers.tick(45_000)
  mock.timers.enable({ apis: ['setTimeout'] })
  // The server greets only after a pause.
  const pace = setInterval(() => mock.timers.tick(5), 5)
  t.teardown(() => {
    clearInterval(pace)
    mock.timers.reset()
  })
  t.equal(await send(channel), true)
  t.equal(server.mails.length, 1)
})

t.test('mail: a + in an address is a plus, escaped or not', async t => {
  const server = await smtpServer(t, { user: 'ackbox', password: secrets.token, tls: false })
  const to = 'ops+alarms@example.com, Night <night%2Bx@example.com>'
  const query = `from=ackbox+prod@example.com&to=${to}&tls=off`
  const channel = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/?${query}`)
  t.equal(await send(channel), true)
  t.match(
    server.mails,
    only({ from: 'ackbox+prod@example.com', to: only('ops+alarms@example.com', 'night+x@example.com') })
  )
})

t.test('mail: an address that is none is refused, and said which', t => {
  const said = (query: string) => parseChannel('ops', `smtp://mail.test/?${query}`)
  const to = 'to=ops@example.com'
  for (const from of ['ackbox', 'ack box@example.com', 'a@b@c', 'Ackbox <ackbox>', 'a@b.c,d@e.f'])
    t.match(said(`from=${from}&${to}`), /^has a from that is not a mail address: smtp:/, from)
  for (const wrong of ['ops', 'ops%20x@example.com', 'a@b.c,nobody', 'a@b.c;d@e.f'])
    t.match(said(`from=a@b.c&to=${wrong}`), /^has a to that is no mail address/, wrong)
  for (const none of [to, 'from=a@b.c', 'from=a@b.c&to=,'])
    t.match(said(none), /^needs from and to: smtp:/, none)
  t.match(said(`from="Ackbox, shop" <a@b.c>&to=ops@localhost,Night <n@b.c>`), { kind: 'mail' })
  t.end()
})

t.test('mail: what goes wrong is said, and the password with it is not', async t => {
  const server = await smtpServer(t, { user: 'ackbox', password: 'another password' })
  const query = '?from=a@example.com&to=b@example.com'
  const unknown = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/${query}`)
  t.match(await send(unknown), { reason: /^smtp: .*certificate/ }, 'a certificate that nobody vouches for')
  t.equal(server.logins, 0)
  const wrong = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/${query}&tls=off`)
  t.match(await send(wrong), { reason: /^smtp: EAUTH/ })
  t.notMatch(JSON.stringify(await send(wrong)), secrets.token)
  const plain = await smtpServer(t, { user: 'ackbox', password: secrets.token, tls: false })
  const login = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${plain.port}/${query}`)
  t.match(await send(login), { reason: /^smtp: / })
  t.equal(plain.logins, 0, 'no password goes out without TLS')
  const open = await opened(t, `smtp://ackbox:${secrets.token}@127.0.0.1:${plain.port}/${query}&tls=off`)
  t.equal(await send(open), true, 'unless the URL says so')
  await plain.close()
  t.match(await send(open), { reason: /^smtp: E/ })
})

t.test('a channel is known by its URL; what is wrong is said without the URL', async t => {
  const kindOf = (url: unknown): string => {
    const channel = parseChannel('ops', url)
    return typeof channel === 'string' ? channel : channel.kind
  }
  const key = secrets.token
  t.same(
    [
      `https://oapi.dingtalk.com/robot/send?access_token=${key}`,
      `https://open.feishu.cn/open-apis/bot/v2/hook/${key}`,
      `https://open.larksuite.com/open-apis/bot/v2/hook/${key}`,
      `https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=${key}`,
      `https://hooks.slack.com/services/T0/B0/${key}`,
      `https://:${key}@events.pagerduty.com`,
      'http://alertmanager:9093/api/v2/alerts',
      'alertmanager+http://alertmanager:9093',
      'smtps://mail.test/?from=a@b.c&to=d@e.f',
      { url: 'https://alerts.example.com/ackbox', kinds: ['FAILED'] }
    ].map(kindOf),
    [
      'dingtalk',
      'feishu',
      'feishu',
      'wecom',
      'slack',
      'pagerduty',
      'alertmanager',
      'alertmanager',
      'mail',
      'webhook'
    ]
  )
  t.match(parseChannel('ops', `https://:${key}@events.pagerduty.com`), {
    url: 'https://events.pagerduty.com/v2/enqueue',
    secret: key,
    sendResolved: true,
    digestMs: 10_000
  })
  for (const wrong of [
    7,
    `ftp://${key}.test`,
    `teams+https://x/${key}`,
    key,
    { url: `https://x/${key}`, kinds: ['FAILD'] },
    { url: `https://x/${key}`, kinds: [] },
    { url: `https://x/${key}`, downstream: ['a'] },
    { url: `https://x/${key}`, secret: key },
    { url: `https://x/${key}`, sendResolved: 'yes' },
    { url: `https://x/${key}`, digestSeconds: 0 },
    `https://events.pagerduty.com/?${key}`,
    `smtp://me:${key}@mail.test`,
    `https://%:${key}@x`
  ]) {
    const said = parseChannel('ops', wrong)
    t.type(said, 'string', JSON.stringify(wrong))
    t.notMatch(JSON.stringify(said), key)
  }
})
