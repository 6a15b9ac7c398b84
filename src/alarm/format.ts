import { signer } from '../transport/sign.ts'
import type { ChannelKind } from './channel-config.ts'
import { dingtalk, feishu, slack, wecom } from './chat.ts'
import { visibleJson } from './inert-text.ts'
import { groupOf, inert, isResolved, textOf, titleOf } from './message.ts'
import type { Format, Rate } from './types.ts'

const takenBy2xx = (): true => true

/** https://developer.pagerduty.com/docs/send-alert-event */
const pagerduty: Format = {
  rate: { burst: 20, everyMs: 1_000 },
  request({ url, secret, language }, message, { more }) {
    const { downstream, kind, since, count, deliveries } = message
    const body = {
      routing_key: secret,
      event_action: isResolved(message) ? 'resolve' : 'trigger',
      dedup_key: groupOf(message),
      ...(isResolved(message)
        ? {}
        : {
            payload: {
              summary: titleOf(message, language),
              source: 'ackbox',
              severity: 'error',
              timestamp: since,
              component: downstream || 'ackbox',
              class: kind,
              custom_details: {
                count,
                deliveries: deliveries.slice(0, 20).map(one => inert(one, kind)),
                more
              }
            },
            client: 'Ackbox'
          })
    }
    return { url, body: JSON.stringify(body) }
  },
  judge({ json }) {
    const { status, message } = { status: undefined, message: undefined, ...(json as object | undefined) }
    return status === 'success'
      ? true
      : { reason: `answered ${String(status)}: ${String(message).slice(0, 200)}` }
  }
}

/** Alertmanager resolves an alert after this time, unless it is sent again. */
const alertMs = 3_600_000

/** https://prometheus.io/docs/alerting/latest/alerts_api/ */
const alertmanager: Format = {
  rate: { burst: 20, everyMs: 1_000 },
  request({ url, user, secret, language }, message, { more, now }) {
    const { downstream, kind, since } = message
    const alert = {
      labels: {
        alertname: 'AckboxAlarm',
        kind,
        ...(downstream === '' ? {} : { downstream }),
        severity: 'error'
      },
      annotations: {
        summary: titleOf(message, language),
        description: textOf(message, language, more, 4_000)
      },
      startsAt: since,
      endsAt: new Date(isResolved(message) ? now : now + alertMs).toISOString(),
      generatorURL: more
    }
    const login = Buffer.from(`${user ?? ''}:${secret ?? ''}`).toString('base64')
    return {
      url,
      body: JSON.stringify([alert]),
      ...(secret === undefined ? {} : { headers: { authorization: `Basic ${login}` } })
    }
  },
  judge: takenBy2xx
}

/** The request is signed like a delivery, by Standard Webhooks. */
const webhook: Format = {
  rate: { burst: 100, everyMs: 100 },
  request({ url, secret = '' }, message, { now }) {
    const { id, ...rest } = message
    const body = visibleJson(rest)
    const timestamp = Math.floor(now / 1_000)
    const signed = {
      'webhook-id': id,
      'webhook-timestamp': String(timestamp),
      'webhook-signature': signer([secret])(id, timestamp, body)
    }
    return { url, body, signed }
  },
  judge: takenBy2xx
}

export const formats: Record<Exclude<ChannelKind, 'mail'>, Format> = {
  dingtalk,
  feishu,
  wecom,
  slack,
  pagerduty,
  alertmanager,
  webhook
}

/** Mail servers publish no limit. Mail gets the limit of the chat robots, so that no mailbox is flooded. */
export const rateOf = (kind: ChannelKind): Rate =>
  kind === 'mail' ? { burst: 10, everyMs: 6_000 } : formats[kind].rate
