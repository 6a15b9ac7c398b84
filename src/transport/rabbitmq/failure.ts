import type { Outcome } from '../../domain/types.ts'
import { failed } from '../failure.ts'

/** Why the server closed a channel. One message is the cause, but all messages in flight on the channel are rejected. */
export interface Closed {
  code: string
  text: string
}

/** The properties of a message that may have closed its channel. */
export interface Suspect {
  exchange: string
  routingKey: string
  bytes: number
}

/**
 * The effect of a closed channel on one message in flight. `again`: this message was not the cause. `alone`: it may be the cause;
 * sending it alone shows. In both cases the message may already be stored: the repeat is then a duplicate with the same id.
 */
export type SendVerdict = Outcome | 'again' | 'alone'

/**
 * The client gives the server's reason to the message that waits the longest, even if another one is the cause. So the cause is
 * found by the text of the reason. A channel serves one exchange, so a reason about the exchange applies to all its messages.
 */
export function verdict(closed: Closed | undefined, suspect: Suspect, wasAlone: boolean): SendVerdict {
  if (!closed) return wasAlone ? failed('channel_closed') : 'alone'
  if (closed.code === 'NOT_FOUND')
    return failed(`target_missing: the exchange ${suspect.exchange} does not exist`)
  if (closed.code === 'ACCESS_REFUSED') {
    const forbidden = topicOf(closed.text)
    if (forbidden !== undefined && forbidden !== suspect.routingKey) return 'again'
    return failed(`credentials: may not publish to ${target(suspect)}`)
  }
  if (closed.code === 'CODEC') return failed('bad_request: the message does not fit into a frame')
  const most = maxSize(closed.text)
  if (most !== undefined && (suspect.bytes > most || wasAlone)) return tooLarge(suspect.bytes, most)
  if (most !== undefined) return 'again'
  return wasAlone ? failed(`channel_closed: ${closed.code}`) : 'alone'
}

export const tooLarge = (bytes: number, most: number): Outcome => ({
  kind: 'refused',
  reason: `too_large: ${bytes} bytes, the broker takes ${most}`
})

/** Neither a queue nor an alternate exchange took the message. */
export const unroutable = (suspect: Suspect): Outcome => ({
  kind: 'failed',
  reason: `target_missing: ${
    suspect.exchange === ''
      ? `the queue ${suspect.routingKey} does not exist`
      : `no queue is bound to ${target(suspect)}`
  }`
})

const target = ({ exchange, routingKey }: Suspect): string =>
  exchange === '' ? `the queue ${routingKey}` : `the exchange ${exchange} with the key ${routingKey}`

/** `… message size 20000000 is larger than configured max size 16777216` */
export function maxSize(text: string): number | undefined {
  const size = /message size \d+ .*max size (\d+)/.exec(text)?.[1]
  return size === undefined ? undefined : Number(size)
}

/** `… write access to topic 'order.paid' in exchange 'orders' …`: the only refusal that is not about the whole exchange. */
const topicOf = (text: string): string | undefined => /access to topic '(.*)' in exchange '/s.exec(text)?.[1]
