// Alarm channels for tests: a channel whose answers the test sets, and the functions that send alarms to channels.
import type { AlarmRule } from '../../src/domain/types.ts'
import type { AlarmChannel, AlarmMessage, Sent } from '../../src/alarm/types.ts'
import { routeAlarms, sendDueMessage } from '../../src/alarm/send-alarms.ts'
import { sweepAlarmSends, type AlarmSendKey } from '../../src/db/alarm-sends.ts'
import type { Sql } from '../../src/db/pool.ts'
import type { Logger } from '../../src/runtime/logger.ts'

export interface ScriptedChannel extends AlarmChannel {
  messages: AlarmMessage[]
  /** Its answer to the next messages; true by default. */
  answer: (message: AlarmMessage) => Sent | Promise<Sent>
}

export function scriptedChannel(
  more: Partial<Omit<ScriptedChannel, 'rule'>> & { rule?: AlarmRule } = {}
): ScriptedChannel {
  const channel: ScriptedChannel = {
    name: 'ops',
    kind: 'webhook',
    rule: {},
    sendResolved: false,
    digestMs: 30_000,
    rate: { burst: 1_000, everyMs: 1 },
    messages: [],
    answer: () => true,
    async send(message) {
      const sent = await channel.answer(message)
      if (sent === true) channel.messages.push(message)
      return sent
    },
    close: async () => {},
    ...more
  }
  return channel
}

/** Sends all alarms that are due now to these channels. */
export async function told(
  { sql, log }: { sql: Sql; log: Logger },
  ...channels: AlarmChannel[]
): Promise<void> {
  while ((await routeAlarms({ sql, log }, channels)) > 0);
  const { signal } = new AbortController()
  const metrics = { alarmSent() {} }
  for (let after: AlarmSendKey | null = null, first = true; first || after; first = false)
    after = await sweepAlarmSends(sql, 1_000, after)
  for (const channel of channels) while (await sendDueMessage({ sql, metrics, log, signal }, channel));
}

/** Makes time pass for the channels. */
export async function laterForChannels(sql: Sql, interval: string): Promise<void> {
  await sql.begin(async tx => {
    await tx`update alarm_group set next_action_at = next_action_at - ${interval}::interval,
      told_at = told_at - ${interval}::interval, opened_at = opened_at - ${interval}::interval`
    await tx`update alarm_channel set free_at = free_at - ${interval}::interval`
    await tx`update alarm set next_action_at = next_action_at - ${interval}::interval where next_action_at < 'infinity'`
  })
}
