import type { AlarmChannel } from './flow/alarm.ts'
import { guard } from './transport/guard.ts'
import { httpTransport } from './transport/http.ts'
import { signer } from './transport/sign.ts'
import { signingSecret } from './task/token.ts'

const timeoutMs = 10_000

/**
 * ALARM_WEBHOOK_URL as a channel: POSTs signed JSON (Standard Webhooks) through the same transport as deliveries. The
 * secret is a `whsec_` one, or SECRET from which one is derived for the name `ackbox-alarm`.
 */
export function alarmChannel({
  url,
  secret,
  egressAllow
}: {
  url: string
  secret: string
  egressAllow: string[]
}): AlarmChannel {
  const { hostname, port, protocol } = new URL(url)
  // The operator named this very target, so it is allowed; nothing else is by it.
  const allow = [...egressAllow, `${hostname}:${port || (protocol === 'https:' ? 443 : 80)}`]
  const transport = httpTransport({ guard: guard({ allow, embedded: false, deny: [] }) })
  const sign = signer([secret.startsWith('whsec_') ? secret : signingSecret(secret, 'ackbox-alarm')])
  return async (message, id) => {
    const outcome = await transport.send(
      { url, body: JSON.stringify(message) },
      {
        downstream: 'ackbox-alarm',
        timeoutMs,
        signal: new AbortController().signal,
        headers(payload) {
          const timestamp = Math.floor(Date.now() / 1000)
          return {
            'webhook-id': id,
            'webhook-timestamp': String(timestamp),
            'webhook-signature': sign(id, timestamp, payload)
          }
        }
      }
    )
    return outcome.kind === 'delivered'
  }
}
