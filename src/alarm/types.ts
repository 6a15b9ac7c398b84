import type { AlarmKind } from '../domain/types.ts'
import type { Answer } from '../transport/types.ts'
import type { ChannelConfig } from './channel-config.ts'

/** One message for all alarms of one downstream and kind that are sent together. */
export interface AlarmMessage {
  type: 'ackbox.alarm' | 'ackbox.alarm.resolved'
  /** Stays the same when the message is sent again. */
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

/**
 * The result of a send. `reason` contains no secret. `holdMs`: the channel takes no message for this time. `isTaken`: only some
 * recipients were refused. The message is not sent again, because the others would get it again and again.
 */
export type Sent = true | { reason: string; holdMs?: number; isTaken?: boolean }

/** An open channel. `send` never rejects because of a failure outside this process. */
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
  /** Headers that the transport accepts only from Ackbox itself. */
  signed?: Record<string, string>
}

/** The rate limit of a channel: `burst` messages at once, then one every `everyMs`. */
export interface Rate {
  burst: number
  everyMs: number
}

/** The requests of one kind of channel, and the answers by which it accepts a message. */
export interface Format {
  rate: Rate
  /** `more`: the URL that lists the alarms. `now`: ms. */
  request(channel: ChannelConfig, message: AlarmMessage, about: { more: string; now: number }): AlarmRequest
  /** Called for 2xx answers only. */
  judge(answer: Answer): Sent
}
