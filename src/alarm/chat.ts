// Chat robots. They answer 200 even to a message that they refuse: the code in the body decides.
// DingTalk: https://open.dingtalk.com/document/orgapp/custom-robot-access
// Feishu and Lark: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot
// WeCom: https://developer.work.weixin.qq.com/document/path/91770
// Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
import { createHmac } from 'node:crypto'
import { defined } from '../domain/optional-members.ts'
import type { Format, Sent } from './types.ts'
import { textOf, titleOf } from './message.ts'

const hmac = (key: string, text: string): string => createHmac('sha256', key).update(text).digest('base64')

/** A member of a JSON answer. Undefined for an answer that is not JSON, for example from a proxy. */
function member(json: unknown, name: string): unknown {
  return typeof json === 'object' && json !== null ? (json as Record<string, unknown>)[name] : undefined
}

/** DingTalk blocks a robot for ten minutes after too many messages. */
const dingtalkHoldMs = 600_000
const minuteMs = 60_000

export const dingtalk: Format = {
  // DingTalk allows 20 messages a minute: at most 10 at once, then one every 6 s.
  rate: { burst: 10, everyMs: 6_000 },
  request({ url, secret, language }, message, { more, now }) {
    const target = new URL(url)
    if (secret !== undefined) {
      target.searchParams.set('timestamp', String(now))
      target.searchParams.set('sign', hmac(secret, `${now}\n${secret}`))
    }
    const content = textOf(message, language, more, 16_000)
    return { url: target.href, body: JSON.stringify({ msgtype: 'text', text: { content } }) }
  },
  judge: ({ json }) => byCode('errcode', 'errmsg', json, { 130101: dingtalkHoldMs })
}

export const feishu: Format = {
  // Feishu allows 100 messages a minute and 5 a second.
  rate: { burst: 4, everyMs: 1_000 },
  request({ url, secret, language }, message, { more, now }) {
    const timestamp = String(Math.floor(now / 1_000))
    const [title = '', ...lines] = textOf(message, language, more, 16_000).split('\n')
    // The type is post, not text: markup in a text can mention people.
    const content = lines.map(text => [{ tag: 'text', text }])
    const body = {
      ...(secret === undefined ? {} : { timestamp, sign: hmac(`${timestamp}\n${secret}`, '') }),
      msg_type: 'post',
      content: { post: { [language === 'zh' ? 'zh_cn' : 'en_us']: { title, content } } }
    }
    return { url, body: JSON.stringify(body) }
  },
  judge: ({ json }) => byCode('code', 'msg', json, { 9499: minuteMs, 11232: minuteMs })
}

export const wecom: Format = {
  // WeCom allows 20 messages a minute, as DingTalk does.
  rate: { burst: 10, everyMs: 6_000 },
  request: ({ url, language }, message, { more }) => ({
    url,
    body: JSON.stringify({ msgtype: 'text', text: { content: textOf(message, language, more, 2_048) } })
  }),
  judge: ({ json }) => byCode('errcode', 'errmsg', json, { 45009: minuteMs, 45033: minuteMs })
}

export const slack: Format = {
  // Slack allows one message a second.
  rate: { burst: 1, everyMs: 1_000 },
  request({ url, language }, message, { more }) {
    const text = textOf(message, language, more, 8_000)
    const escaped = text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
    const body = {
      text: escaped.replace(titleOf(message, language), title => `*${title}*`),
      unfurl_links: false
    }
    return { url, body: JSON.stringify(body) }
  },
  judge: ({ text }) =>
    text.trim() === 'ok' ? true : { reason: `answered ${JSON.stringify(text.slice(0, 100))}` }
}

/** Code 0 means accepted. `holds`: codes for too many messages, with the pause in ms before the next one. */
function byCode(name: string, words: string, json: unknown, holds: Record<number, number>): Sent {
  const code = member(json, name)
  if (code === 0) return true
  if (typeof code !== 'number') return { reason: `answered without ${name}` }
  const errorText = member(json, words)
  const reason = `${name} ${code}: ${typeof errorText === 'string' ? errorText.slice(0, 200) : ''}`
  return { reason, ...defined({ holdMs: holds[code] }) }
}
