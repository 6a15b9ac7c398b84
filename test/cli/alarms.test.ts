import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { only } from '../support/only.ts'
import { folder } from '../support/service.ts'
import { smtpServer } from '../support/smtp.ts'
import { channelUrl, secrets, vendor } from '../support/vendors.ts'
import { ca } from '../transport/certs.ts'

const program = fileURLToPath(new URL('../../src/cli/ackbox.js', import.meta.url))

async function alarms(
  env: Record<string, string>,
  ...args: string[]
): Promise<{ code: number; out: string; err: string }> {
  const all = {
    PATH: process.env['PATH'] ?? '',
    DATABASE_URL: 'postgres://127.0.0.1:1/none',
    SECRET: 'a secret of the test that is long enough',
    ...env
  }
  return await new Promise(resolve => {
    const child = execFile(
      process.execPath,
      [program, 'alarms', ...args],
      { env: all },
      (_error, out, err) => {
        resolve({ code: child.exitCode ?? -1, out, err })
      }
    )
  })
}

t.test('the channels are listed without their secrets, and one can be tested', async t => {
  const [ding, slack] = await Promise.all([vendor(t, 'dingtalk'), vendor(t, 'slack')])
  const env = {
    ALARM_CHANNELS: JSON.stringify({
      ops: { url: channelUrl('dingtalk', ding), kinds: ['FAILED', 'TLS'], downstreams: ['warehouse'] },
      duty: `https://:${secrets.pagerduty}@events.pagerduty.com`
    }),
    ALARM_CHANNEL_NIGHT_SHIFT: channelUrl('slack', slack),
    ALARM_WEBHOOK_URL: `https://alerts.example.com/${secrets.token}`
  }
  const listed = await alarms(env, 'list')
  t.equal(listed.err, '')
  t.match(
    listed.out.trimEnd().split('\n'),
    only(
      'webhook  webhook  en  alerts.example.com  all alarms',
      /^ops {2}dingtalk {2}zh {2}127\.0\.0\.1:\d+ {2}kinds FAILED,TLS; downstreams warehouse$/,
      'duty  pagerduty  en  events.pagerduty.com  all alarms  also told when it is resolved',
      /^night-shift {2}slack {2}en {2}127\.0\.0\.1:\d+ {2}all alarms$/
    )
  )
  t.notMatch(listed.out, /canary/i)

  t.match(await alarms(env, 'test', 'night-shift'), {
    code: 0,
    out: /^night-shift \(slack\) accepted/,
    err: ''
  })
  t.match(slack.taken, only(/\[TEST\]/))
  const wrong = { ...env, ALARM_CHANNEL_OPS: channelUrl('dingtalk', ding).replace('SECcanary', 'SECcanari') }
  const refused = await alarms(wrong, 'test', 'ops')
  t.match(refused, {
    code: 1,
    out: '',
    err: /^ops \(dingtalk\) did not accept the message: errcode 310000: sign not match/
  })
  t.notMatch(refused.err, /7c1e8f0a9b2d4c6e|canari/)
  t.match(await alarms(env, 'test', 'nobody'), {
    code: 1,
    err: /Unknown channel: nobody\. The channels are/
  })
  t.match(await alarms(env, 'test'), { code: 1, err: /name of the channel is missing/ })
  t.match(await alarms({}, 'list'), { code: 0, out: /No channel is set/ })
  t.match(await alarms({}, '--help'), { code: 0, out: /alarms (-- )?test NAME/ })
})

t.test('mail goes by TLS to a server whose certificate is vouched for', async t => {
  const server = await smtpServer(t, { user: 'ackbox', password: secrets.token })
  const file = path.join(folder(t), 'ca.pem')
  writeFileSync(file, ca)
  const url = `smtp://ackbox:${secrets.token}@127.0.0.1:${server.port}/?from=a@example.com&to=b@example.com`
  const env = { ALARM_CHANNELS: JSON.stringify({ mail: url }), NODE_EXTRA_CA_CERTS: file }
  const sent = await alarms(env, 'test', 'mail')
  t.match(sent, { code: 0, out: /accepted/, err: '' })
  t.match(server.mails, only({ tls: true, user: 'ackbox', text: /\[TEST\] Ackbox/ }))
})

t.test('what is wrong in the settings is said without any URL', async t => {
  const { token } = secrets
  const wrong = await alarms(
    {
      ALARM_CHANNELS: `{"Ops":"https://a/${token}","a":"ftp://${token}","b":{"url":"https://x/${token}","kind":"slack"}}`,
      ALARM_CHANNEL_x: `https://a/${token}`
    },
    'list'
  )
  t.equal(wrong.code, 1)
  t.match(wrong.err, /"Ops" must be 1 to 32 small letters/)
  t.match(wrong.err, /ALARM_CHANNELS: a must start with/)
  t.match(wrong.err, /ALARM_CHANNELS: b has the unknown member "kind"/)
  t.match(wrong.err, /ALARM_CHANNEL_x names no channel/)
  t.notMatch(wrong.err, token)
  const broken = await alarms({ ALARM_CHANNELS: `["${token}"` }, 'list')
  t.match(broken, { code: 1, err: /ALARM_CHANNELS must be a JSON object/ })
  t.notMatch(broken.err, token)
})
