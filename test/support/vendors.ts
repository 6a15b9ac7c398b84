// Fake vendors of alarm channels, written from their documentation: they check the path, the signature, the format and the
// rate, and answer with the vendors' own codes.
import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { Webhook } from 'standardwebhooks'

interface Call {
  url: URL
  headers: IncomingHttpHeaders
  body: string
}
interface Reply {
  status: number
  body: string
  headers?: Record<string, string>
}
export interface Vendor {
  /** The address to send to, with the token that it requires. */
  url: string
  /** The text or the JSON of each message that it accepted. */
  taken: string[]
  refused: string[]
  /** Its clock, which the rate limits use. */
  now: () => number
}

/** The codes and texts are from https://open.dingtalk.com/document/orgapp/custom-robot-access and the pages named in chat.ts. */
export type VendorName = 'dingtalk' | 'feishu' | 'wecom' | 'slack' | 'pagerduty' | 'alertmanager' | 'webhook'

export const secrets = {
  token: 'canary-token-7c1e8f0a9b2d4c6e',
  dingtalk: 'SECcanary0123456789abcdef0123456789abcdef',
  feishu: 'canaryFeishuSecret0123',
  pagerduty: 'canaryroutingkey0123456789abcdef',
  webhook: `whsec_${Buffer.from('a key of twenty-four bytes').toString('base64')}`,
  alertmanager: 'canary-password'
}

const json = (status: number, body: unknown): Reply => ({ status, body: JSON.stringify(body) })
const sign = (key: string, text: string): string => createHmac('sha256', key).update(text).digest('base64')

// eslint-disable-next-line typescript/no-explicit-any -- any body may be posted: each vendor checks the members that it knows
type Look = (call: Call, body: any, now: number, limited: boolean) => { reply: Reply; taken?: string }

const vendors: Record<VendorName, { path: string; perMinute: number; perSecond: number; look: Look }> = {
  dingtalk: {
    path: `/robot/send?access_token=${secrets.token}`,
    perMinute: 20,
    perSecond: 20,
    look({ url }, body, now, limited) {
      const no = (errcode: number, errmsg: string) => ({ reply: json(200, { errcode, errmsg }) })
      if (url.searchParams.get('access_token') !== secrets.token) return no(300001, 'token is not exist')
      const timestamp = url.searchParams.get('timestamp') ?? ''
      if (Math.abs(now - Number(timestamp)) > 3_600_000) return no(310000, 'invalid timestamp')
      if (url.searchParams.get('sign') !== sign(secrets.dingtalk, `${timestamp}\n${secrets.dingtalk}`))
        return no(310000, `sign not match, more: [https://ding-doc/] token ${secrets.token}`)
      if (limited) return no(130101, 'send too fast')
      if (body.msgtype !== 'text' || typeof body.text?.content !== 'string')
        return no(40035, 'missing parameter')
      return { reply: json(200, { errcode: 0, errmsg: 'ok' }), taken: body.text.content }
    }
  },
  feishu: {
    path: `/open-apis/bot/v2/hook/${secrets.token}`,
    perMinute: 100,
    perSecond: 5,
    look(_call, body, now, limited) {
      const no = (code: number, msg: string) => ({ reply: json(200, { code, msg, data: {} }) })
      if (limited) return no(11232, 'frequency limited psm')
      if (Math.abs(now / 1_000 - Number(body.timestamp)) > 3_600 || !/^\d{10}$/.test(body.timestamp))
        return no(19021, 'sign match fail or timestamp is not within one hour from current time')
      if (body.sign !== sign(`${body.timestamp}\n${secrets.feishu}`, ''))
        return no(19021, 'sign match fail or timestamp is not within one hour from current time')
      const post = body.content?.post?.zh_cn ?? body.content?.post?.en_us
      const lines: string[] | undefined = post?.content?.map((line: { tag: string; text: string }[]) =>
        line.map(part => (part.tag === 'text' ? part.text : '?')).join('')
      )
      if (body.msg_type !== 'post' || !lines || typeof post.title !== 'string') return no(9499, 'Bad Request')
      return {
        reply: json(200, { StatusCode: 0, StatusMessage: 'success', code: 0, data: {}, msg: 'success' }),
        taken: [post.title, ...lines].join('\n')
      }
    }
  },
  wecom: {
    path: `/cgi-bin/webhook/send?key=${secrets.token}`,
    perMinute: 20,
    perSecond: 20,
    look({ url }, body, _now, limited) {
      const no = (errcode: number, errmsg: string) => ({ reply: json(200, { errcode, errmsg }) })
      if (url.searchParams.get('key') !== secrets.token) return no(93000, 'invalid webhook url')
      if (limited) return no(45009, 'api freq out of limit')
      const content = body.text?.content
      if (body.msgtype !== 'text' || typeof content !== 'string') return no(40008, 'invalid message type')
      if (Buffer.byteLength(content) > 2_048) return no(45002, 'content size out of limit')
      return { reply: json(200, { errcode: 0, errmsg: 'ok' }), taken: content }
    }
  },
  slack: {
    path: `/services/T0/B0/${secrets.token}`,
    perMinute: 60,
    perSecond: 1,
    look({ url }, body, _now, limited) {
      if (!url.pathname.endsWith(secrets.token)) return { reply: { status: 403, body: 'invalid_token' } }
      if (limited) return { reply: { status: 429, body: 'rate_limited', headers: { 'retry-after': '30' } } }
      if (typeof body.text !== 'string' || body.text === '')
        return { reply: { status: 400, body: 'no_text' } }
      return { reply: { status: 200, body: 'ok' }, taken: body.text }
    }
  },
  pagerduty: {
    path: '/v2/enqueue',
    perMinute: 120,
    perSecond: 120,
    look(_call, body, _now, limited) {
      const no = (...errors: string[]) => ({
        reply: json(400, { status: 'invalid event', message: 'Event object is invalid', errors })
      })
      if (limited) return { reply: json(429, { status: 'throttle exceeded' }) }
      if (body.routing_key !== secrets.pagerduty) return no('routing_key is the wrong length')
      if (typeof body.dedup_key !== 'string' || body.dedup_key.length > 255) return no('dedup_key')
      if (body.event_action === 'trigger') {
        const { summary, source, severity, timestamp } = body.payload ?? {}
        if (typeof summary !== 'string' || summary.length > 1_024 || !source) return no('summary or source')
        if (!['critical', 'error', 'warning', 'info'].includes(severity)) return no('severity')
        if (Number.isNaN(Date.parse(timestamp))) return no('timestamp')
      } else if (body.event_action !== 'resolve') return no('event_action')
      return {
        reply: json(202, { status: 'success', message: 'Event processed', dedup_key: body.dedup_key }),
        taken: JSON.stringify({ ...body, routing_key: 'right' })
      }
    }
  },
  alertmanager: {
    path: '/api/v2/alerts',
    perMinute: 1e9,
    perSecond: 1e9,
    look({ headers }, body) {
      const login = Buffer.from(`me:${secrets.alertmanager}`).toString('base64')
      if (headers.authorization !== `Basic ${login}`) return { reply: { status: 401, body: 'Unauthorized' } }
      for (const alert of body) {
        const names = Object.keys({ ...alert.labels, ...alert.annotations })
        if (!alert.labels?.alertname || !names.every(name => /^[a-zA-Z_]\w*$/.test(name)))
          return { reply: json(400, 'labels') }
        if (!(Date.parse(alert.startsAt) <= Date.parse(alert.endsAt)))
          return { reply: json(400, 'start time must be before end time') }
      }
      return { reply: { status: 200, body: '' }, taken: JSON.stringify(body) }
    }
  },
  webhook: {
    path: `/alarms/${secrets.token}`,
    perMinute: 1e9,
    perSecond: 1e9,
    look({ headers, body }) {
      try {
        new Webhook(secrets.webhook).verify(body, headers as Record<string, string>)
      } catch {
        return { reply: { status: 401, body: `no such signature ${secrets.token}` } }
      }
      return { reply: { status: 204, body: '' }, taken: body }
    }
  }
}

export async function vendor(t: Test, name: VendorName): Promise<Vendor> {
  const { path, perMinute, perSecond, look } = vendors[name]
  const seen: Vendor = { url: '', taken: [], refused: [], now: Date.now }
  const times: number[] = []
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const url = new URL(request.url ?? '', 'http://vendor.test')
      const body = Buffer.concat(chunks).toString()
      const now = seen.now()
      times.push(now)
      const within = (ms: number): number => times.filter(at => at > now - ms).length
      const limited = within(60_000) > perMinute || within(1_000) > perSecond
      const isJson =
        request.method === 'POST' && request.headers['content-type']?.startsWith('application/json') === true
      const known = url.pathname === path.split('?')[0]
      const { reply, taken } =
        isJson && known
          ? look({ url, headers: request.headers, body }, JSON.parse(body), now, limited)
          : { reply: { status: 404, body: 'not found' } }
      if (taken === undefined) seen.refused.push(reply.body)
      else seen.taken.push(taken)
      response.writeHead(reply.status, reply.headers).end(reply.body)
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  })
  seen.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}${path}`
  return seen
}

/** The URL for the setting: with the kind, the user and the secret. */
export function channelUrl(name: VendorName, { url }: Vendor): string {
  const place = new URL(url)
  if (name === 'alertmanager') place.username = 'me'
  place.password = { ...secrets, wecom: '', slack: '' }[name] ?? ''
  return `${name}+${place.href}`
}
