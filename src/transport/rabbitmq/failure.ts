import type { Outcome } from '../../domain/types.ts'
import { failed } from '../failure.ts'

/** Why the server closed a channel. It closes it for one message, and every other one in flight on it is rejected too. */
export interface Closed {
  code: string
  text: string
}

/** What of a message may have closed its channel. */
export interface Suspect {
  exchange: string
  routingKey: string
  bytes: number
}

/**
 * What that means for one of those in flight. `again`: it was not this one. `alone`: it may have been; sent with nobody
 * beside it, it shows. Both may already be stored: sent again they are duplicates with the same id, never lost.
 */
export type SendVerdict = Outcome | 'again' | 'alone'

/**
 * The client gives the server's reason to the message that waits the longest, whichever it was: the message is found by what
 * the reason says. A channel serves one exchange, so what is said of the exchange goes for all on it.
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

/** No queue took it, and no alternate exchange did. */
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
  const said = /message size \d+ .*max size (\d+)/.exec(text)?.[1]
  return said === undefined ? undefined : Number(said)
}

/** `… write access to topic 'order.paid' in exchange 'orders' …`: the only refusal that is not about the whole exchange. */
const topicOf = (text: string): string | undefined => /access to topic '(.*)' in exchange '/s.exec(text)?.[1]
