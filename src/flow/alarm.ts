import { claimAlarms, markAlarmsSent, type ClaimedAlarm } from '../db/alarms.ts'
import type { Sql } from '../db/open.ts'
import { failpoint } from '../failpoint.ts'
import type { Log } from './log.ts'

/** Where alarms go beside the log: resolves true when it was taken with a 2xx. */
export type AlarmChannel = (message: AlarmMessage, id: string) => Promise<boolean>

/** One message for all alarms of a message code, a downstream and a kind that came together. */
export interface AlarmMessage {
  type: 'ackbox.alarm'
  messageCode: string
  downstream: string
  kind: string
  count: number
  /** The first 100. */
  deliveries: { taskNo: string; attempt: number; reason?: string; createdAt: string }[]
}

export interface AlarmDeps {
  sql: Sql
  /** Undefined: the log line is the channel. */
  channel: AlarmChannel | undefined
  log: Log
}

const atOnce = 1_000
const named = 100

/** Sends what is due, at least once: a crash between sending and marking sends it again. Returns how many it took. */
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

/** Those that the channel took. */
async function sendGroup({ channel, log }: AlarmDeps, alarms: ClaimedAlarm[]): Promise<ClaimedAlarm[]> {
  for (const { taskNo, messageCode, downstream, attempt, kind, reason, tries } of alarms) {
    // Said once: a channel that is away must not fill the log with the same alarm.
    if (tries === 1) log.error({ taskNo, messageCode, downstream, attempt, kind, reason }, 'alarm')
  }
  const [first] = alarms
  if (!channel || !first) return alarms
  const message: AlarmMessage = {
    type: 'ackbox.alarm',
    messageCode: first.messageCode,
    downstream: first.downstream,
    kind: first.kind,
    count: alarms.length,
    deliveries: alarms.slice(0, named).map(({ taskNo, attempt, reason, createdAt }) => ({
      taskNo,
      attempt,
      ...(reason === null ? {} : { reason }),
      createdAt: createdAt.toISOString()
    }))
  }
  // The same id when the same group is sent again, so that its receiver can tell.
  const id = `alarm_${first.taskId}_${first.downstream}_${first.attempt}_${alarms.length}`
  try {
    return (await channel(message, id)) ? alarms : []
  } catch (err) {
    // Those of the other groups that were taken must still be marked, or they would be sent again and again.
    log.warn({ err, downstream: first.downstream, kind: first.kind }, 'alarm.threw')
    return []
  }
}
