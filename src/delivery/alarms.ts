import { claimAlarms, markAlarmsSent, type ClaimedAlarm } from '../db/alarms.ts'
import type { Sql } from '../db/pool.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import { guard } from '../transport/egress/guard.ts'
import { httpTransport } from '../transport/http/http.ts'
import { signer } from '../transport/sign.ts'
import { signingSecret } from '../domain/tokens.ts'

/** A channel for alarms beside the log. Resolves true after a 2xx. */
export type AlarmChannel = (message: AlarmMessage, id: string) => Promise<boolean>

/** One message for all alarms of one message code, downstream and kind that are sent together. */
export interface AlarmMessage {
  type: 'ackbox.alarm'
  messageCode: string
  downstream: string
  kind: string
  count: number
  /** The first 100. */
  deliveries: {
    taskNo: string
    attempt: number
    reason?: string
    /** Of KEY_HELD, with how many wait for it. */
    orderingKey?: string
    waiting?: number
    createdAt: string
  }[]
}

export interface AlarmDeps {
  sql: Sql
  /** Undefined: the alarm is only logged. */
  channel: AlarmChannel | undefined
  log: Logger
}

const atOnce = 1_000
const named = 100

/** Sends due alarms, at least once: after a crash between sending and marking they are sent again. Returns their number. */
export async function sendAlarms(deps: AlarmDeps): Promise<number> {
  const claimed = await claimAlarms(deps.sql, atOnce)
  const sent = await Promise.all(group(claimed).map(alarms => sendGroup(deps, alarms)))
  const taken = sent.flat()
  if (taken.length > 0) failpoint('alarm.after_send')
  if (taken.length > 0) await markAlarmsSent(deps.sql, taken)
  return claimed.length
}

function group(alarms: ClaimedAlarm[]): ClaimedAlarm[][] {
  const groups = new Map<string, ClaimedAlarm[]>()
  for (const alarm of alarms) {
    const key = `${alarm.messageCode} ${alarm.downstream} ${alarm.kind}`
    const one = groups.get(key)
    if (one) one.push(alarm)
    else groups.set(key, [alarm])
  }
  return [...groups.values()]
}

/** The alarms that the channel accepted. */
async function sendGroup({ channel, log }: AlarmDeps, alarms: ClaimedAlarm[]): Promise<ClaimedAlarm[]> {
  for (const { taskNo, messageCode, downstream, attempt, kind, reason, held, tries } of alarms) {
    // Logged once: an unavailable channel must not fill the log with the same alarm.
    if (tries === 1) log.error({ taskNo, messageCode, downstream, attempt, kind, reason, ...held }, 'alarm')
  }
  const [first] = alarms
  if (!channel || !first) return alarms
  const message: AlarmMessage = {
    type: 'ackbox.alarm',
    messageCode: first.messageCode,
    downstream: first.downstream,
    kind: first.kind,
    count: alarms.length,
    deliveries: alarms.slice(0, named).map(({ taskNo, attempt, reason, held, createdAt }) => ({
      taskNo,
      attempt,
      ...(reason === null ? {} : { reason }),
      ...held,
      createdAt: createdAt.toISOString()
    }))
  }
  // The same group gets the same id when it is sent again, so that its receiver can deduplicate.
  const id = `alarm_${first.taskId}_${first.downstream}_${first.attempt}_${alarms.length}`
  try {
    return (await channel(message, id)) ? alarms : []
  } catch (err) {
    // Groups that were accepted must still be marked, or they would be sent again and again.
    log.warn({ err, downstream: first.downstream, kind: first.kind }, 'alarm.send_failed')
    return []
  }
}

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
  // The operator named this target, so it is allowed. Nothing else is.
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
