// Sends alarms to people: each goes to the channels whose rule matches, at the pace of each channel.
import { claimAlarms, markLogged, type ClaimedAlarm } from '../db/alarms.ts'
import {
  addAlarmSends,
  claimAlarmGroup,
  closeAlarmGroup,
  recordSent,
  postponeAlarmGroup,
  readAlarmSends,
  removeUnknownChannels,
  type AlarmGroup,
  type AlarmSend
} from '../db/alarm-sends.ts'
import { liveChannels } from '../db/cluster.ts'
import type { Sql } from '../db/pool.ts'
import { failpoint } from '../runtime/failpoint.ts'
import type { Logger } from '../runtime/logger.ts'
import type { Metrics } from '../runtime/metrics.ts'
import { matches } from './channel-config.ts'
import type { AlarmChannel, AlarmMessage } from './types.ts'

const atOnce = 1_000

/**
 * Logs new alarms and records the channels that must get them: those of this process, and those that only another live process has.
 * Returns the number of alarms. An alarm that matches no channel counts as sent, since it is in the log.
 */
export async function routeAlarms(
  { sql, log }: { sql: Sql; log: Logger },
  channels: readonly Pick<AlarmChannel, 'name' | 'rule'>[]
): Promise<number> {
  const claimed = await claimAlarms(sql, atOnce)
  for (const alarm of claimed) {
    const { taskNo, messageCode, downstream, attempt, kind, reason, held, tries } = alarm
    // Each alarm is logged once: retries after database errors must not fill the log with the same alarm.
    if (tries === 1) log.error({ taskNo, messageCode, downstream, attempt, kind, reason, ...held }, 'alarm')
  }
  if (claimed.length === 0) return 0
  const { known } = await liveChannels(sql)
  const rules = Object.entries({
    ...known,
    ...Object.fromEntries(channels.map(({ name, rule }) => [name, rule]))
  })
  const sends: { channel: string; alarm: ClaimedAlarm }[] = []
  const unmatched: ClaimedAlarm[] = []
  for (const alarm of claimed) {
    const matching = rules.filter(([, rule]) => matches(rule, alarm))
    sends.push(...matching.map(([channel]) => ({ channel, alarm })))
    if (matching.length === 0) unmatched.push(alarm)
  }
  if (sends.length > 0) await addAlarmSends(sql, sends)
  if (unmatched.length > 0) await markLogged(sql, unmatched)
  return claimed.length
}

/**
 * Forgets channels that no live process has, and hands their alarms out again. Does nothing while a dispatcher of an older version
 * lives, which does not say which channels it has.
 */
export async function forgetChannels(
  { sql, log }: { sql: Sql; log: Logger },
  channels: readonly Pick<AlarmChannel, 'name'>[]
): Promise<void> {
  const { known, isComplete } = await liveChannels(sql)
  if (!isComplete) return
  const names = [...Object.keys(known), ...channels.map(({ name }) => name)]
  let released = 0
  for (let isMore = true; isMore;) {
    const step = await removeUnknownChannels(sql, names, atOnce)
    released += step.released
    isMore = step.isMore
  }
  if (released > 0) log.info({ released }, 'alarm.released')
}

export interface SendDeps {
  sql: Sql
  metrics: Pick<Metrics, 'alarmSent'>
  log: Logger
  signal: AbortSignal
}

/** The most deliveries that one message counts. The others wait for the next message. */
const mostInMessage = 10_000
const mostListed = 100
/** Longer than a send can take: no other dispatcher sends the same message during the lease. */
const leaseMs = ({ kind }: Pick<AlarmChannel, 'kind'>): number => (kind === 'mail' ? 75_000 : 15_000)
/** An open incident is sent again at this interval to Alertmanager, which has no alerts after a restart. */
const repeatMs = 300_000

/** Sends one message that is due in this channel, and never loses it. False: no message is due, or the rate limit allows none now. */
export async function sendDueMessage(deps: SendDeps, channel: AlarmChannel): Promise<boolean> {
  const { sql, metrics, log, signal } = deps
  const group = await claimAlarmGroup(sql, channel.name, {
    ...channel.rate,
    leaseMs: leaseMs(channel),
    repeatMs: channel.kind === 'alertmanager' ? repeatMs : null,
    sendResolved: channel.sendResolved
  })
  if (!group) return false
  const sends = group.event === 'raised' ? await readAlarmSends(sql, group, mostInMessage) : []
  if (group.event === 'raised' && sends.length === 0) {
    // The lease had ended, and another dispatcher has sent these alarms.
    await postponeAlarmGroup(sql, group, { ...channel.rate, againMs: 0, holdMs: 0 })
    return true
  }
  if (group.event === 'repeat' && group.open === 0) {
    // All are resolved. The sweep finds this soon.
    await postponeAlarmGroup(sql, group, { ...channel.rate, againMs: 1_000, holdMs: 0 })
    return true
  }
  const message = messageOf(group, sends)
  const result = await channel.send(message, signal)
  metrics.alarmSent(channel.name, result === true ? 'accepted' : 'failed')
  if (result !== true) {
    const { reason, holdMs = 0, isTaken = false } = result
    log.warn(
      { channel: channel.name, downstream: group.downstream, kind: group.kind, tries: group.tries, reason },
      'alarm.send_failed'
    )
    if (!isTaken) {
      const againMs = Math.max(holdMs, Math.min(60, 2 ** Math.min(group.tries, 6)) * 1_000)
      await postponeAlarmGroup(sql, group, { ...channel.rate, againMs, holdMs })
      return true
    }
  }
  failpoint('alarm.after_send')
  if (group.event === 'resolved') await closeAlarmGroup(sql, group, channel.digestMs)
  else await recordSent(sql, group, sends, { keep: channel.sendResolved, digestMs: channel.digestMs })
  return true
}

function messageOf(
  { channel, downstream, kind, event, openedAt, open }: AlarmGroup,
  sends: AlarmSend[]
): AlarmMessage {
  const [first] = sends
  const since = openedAt ?? first?.raisedAt ?? new Date()
  // The time tells an alarm from the same alarm that was raised anew after its end.
  const suffix = first
    ? `${first.taskId}_${first.attempt}_${first.raisedAt.getTime()}_${sends.length}`
    : `${event}_${since.getTime()}`
  return {
    type: event === 'resolved' ? 'ackbox.alarm.resolved' : 'ackbox.alarm',
    // A message that is sent again keeps its id, so that its receiver can deduplicate.
    id: `alarm_${channel}_${kind}_${downstream}_${suffix}`,
    downstream,
    kind,
    since: since.toISOString(),
    count: event === 'repeat' ? open : sends.length,
    deliveries: sends.slice(0, mostListed).map(({ taskNo, messageCode, attempt, reason, raisedAt }) => ({
      taskNo,
      messageCode,
      attempt,
      ...(reason === null ? {} : { reason }),
      createdAt: raisedAt.toISOString()
    }))
  }
}
