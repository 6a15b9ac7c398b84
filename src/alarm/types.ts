import type { AlarmKind } from '../domain/types.ts'
import type { Answer } from '../transport/types.ts'
import type { ChannelConfig } from './channel-config.ts'

/** One message for all alarms of one downstream and kind that are sent together. */
export interface AlarmMessage {
  type: 'ackbox.alarm' | 'ackbox.alarm.resolved'
  /** The same when the same message is sent again. */
  id: string
  /** Empty for alarms about no downstream: REJECTED, PREPARED_STUCK. */
  downstream: string
  kind: AlarmKind | 'TEST'
  /** When the first alarm of this incident was raised. */
  since: string
  count: number
  /** The first 100. */
  deliveries: AlarmedDelivery[]
}

export interface AlarmedDelivery {
  taskNo: string
  messageCode: string
  attempt: number
  reason?: string
  createdAt: string
}

/** What became of a message. `reason` holds no secret. `holdMs`: for how long the channel takes nothing. */
export type Sent = true | { reason: string; holdMs?: number }

/** A channel that messages can be sent to. `send` never rejects for what the world does. */
export interface AlarmChannel extends Pick<
  ChannelConfig,
  'name' | 'kind' | 'rule' | 'sendResolved' | 'digestMs'
> {
  rate: Rate
  send(message: AlarmMessage, signal: AbortSignal): Promise<Sent>
  close(): Promise<void>
}

export interface AlarmRequest {
  url: string
  body: string
  headers?: Record<string, string>
  /** Headers that the transport lets nobody but Ackbox set. */
  signed?: Record<string, string>
}

/** How many messages a channel takes: so many at once, then one each `everyMs`. */
export interface Rate {
  burst: number
  everyMs: number
}

/** How one kind of channel is called, and which answers mean that it accepted the message. */
export interface Format {
  rate: Rate
  /** `more`: the URL that lists the alarms. `now`: ms. */
  request(channel: ChannelConfig, message: AlarmMessage, about: { more: string; now: number }): AlarmRequest
  /** Of an answer 2xx only. */
  judge(answer: Answer): Sent
}
