import { setImmediate as turn } from 'node:timers/promises'
import type { Channel, Connection, Envelope } from 'rabbitmq-client'
import type { Outcome } from '../../domain/types.ts'
import { waitAtMost } from '../../runtime/with-timeout.ts'
import { failed, type Failed } from '../failure.ts'
import {
  maxSize,
  tooLarge,
  unroutable,
  verdict,
  type Closed,
  type SendVerdict,
  type Suspect
} from './failure.ts'
import { brokenBy, codeOf, type Dialed } from './dial.ts'
import type { Flight } from '../sends.ts'
import { isError } from '../../runtime/text-of.ts'

/** One message in flight. */
export interface UnconfirmedSend extends Suspect {
  readonly flight: Flight
  readonly envelope: Envelope & { messageId: string }
  readonly body: Buffer
  /** The server returned it: no queue took it. */
  returned: boolean
  /** Called when the send ends while the server may still confirm it. */
  leave: (() => void) | undefined
}

/** A channel with publisher confirms. */
interface Lane {
  channel: Channel
  /** The channel carries one message at a time, to any exchange. */
  isForOne: boolean
  inFlight: Set<UnconfirmedSend>
  /** Why the server closed it. */
  closed?: Closed
  /** We closed it ourselves, because of the memory that it held. */
  dropped: boolean
  /** The number of messages in flight when it was closed. */
  together: number
  /** Bytes of the messages that ended before the server confirmed or rejected them. */
  leftBytes: number
}

/** Idle channels beyond this number are closed, the least recently used first. */
const lanesKept = 64
/** Queues that never confirm (quorum queues without their majority) must not fill our memory. The limit is for a connection. */
const leftMost = 16 * 1_024 * 1_024
/** The approximate memory of a message beside its body. */
const overhead = 2_048
/** After this many closed channels, the message waits for its next attempt. */
const triesMost = 6
const closeMs = 1_000

/** One open connection and its channels: one for each exchange, because a missing exchange closes its channel. */
export class ChannelPool {
  readonly address: string
  readonly #connection: Connection
  /** By exchange. The key `undefined` is the channel for one message at a time. */
  readonly #lanes = new Map<string | undefined, Promise<Lane>>()
  /** The channels that the server has not closed, also the dropped ones. */
  readonly #notClosed = new Set<Lane>()
  /** The sum of their `leftBytes`: of those that were not dropped, and of the dropped ones. */
  #leftBytes = 0
  #droppedBytes = 0
  /** Bytes of the messages that ended before their channel was open. */
  #unopenedBytes = 0
  #last: Promise<unknown> = Promise.resolve()
  readonly #onGone: (why: Failed) => void
  #gone: Failed | undefined
  #isBlocked = false
  /** The server's size limit, once known. A larger message would close the channel of other messages. */
  #maxBytes = Infinity

  /** Bytes of the messages that were sent, minus those that were returned. */
  readonly #unreturned: { bytes: number }

  constructor({ connection, address }: Dialed, unreturned: { bytes: number }, onGone: (why: Failed) => void) {
    this.address = address
    this.#unreturned = unreturned
    this.#connection = connection
    this.#onGone = onGone
    connection.on('error', (error: unknown) => {
      // Errors of channels also arrive here if no call waits for them.
      if (isError(error) && error.name !== 'AMQPChannelError') this.#end(brokenBy(error))
    })
    connection.on('connection.blocked', () => {
      this.#isBlocked = true
    })
    connection.on('connection.unblocked', () => {
      this.#isBlocked = false
    })
  }

  /** Resolves when the message is confirmed or returned, or when its channel is closed because of it. */
  async publish(sending: UnconfirmedSend): Promise<Outcome> {
    let result: SendVerdict = 'again'
    for (let tries = 0; tries < triesMost; tries++) {
      result =
        result === 'alone' || tries > 1
          ? await this.#inTurn(() => this.#attempt(undefined, sending))
          : await this.#attempt(sending.exchange, sending)
      if (result !== 'again' && result !== 'alone') return result
    }
    return failed('channel_closed')
  }

  /** Drops all messages in flight at once. Closes the connection cleanly if the server still answers. */
  async close(): Promise<void> {
    if (this.#gone) return
    this.#gone = failed('shutdown')
    const channels = Array.from(this.#lanes.values(), async lane => (await lane).channel.close())
    const polite = Promise.allSettled(channels).then(() => this.#connection.close())
    await waitAtMost(closeMs, polite)
    this.#connection.unsafeDestroy()
  }

  async #attempt(exchange: string | undefined, sending: UnconfirmedSend): Promise<SendVerdict> {
    // The deadline may have passed while the message waited. This outcome is then ignored.
    if (sending.flight.over) return failed('timeout')
    if (this.#gone) return this.#gone
    // A message written now would wait in our memory until the broker has resources again.
    if (this.#isBlocked) return failed('blocked: the broker is short of memory or disk space')
    if (sending.bytes > this.#maxBytes) return tooLarge(sending.bytes, this.#maxBytes)
    let lane: Lane
    let left = 0
    const leave = (): void => {
      left = sending.bytes + overhead
      this.#unopenedBytes += left
      if (this.#unopenedBytes >= leftMost)
        this.#end(failed('connection_closed: the broker does not open a channel'))
    }
    sending.leave = leave // not in place: docs/decisions.md, what has ended
    try {
      lane = await this.#lane(exchange)
    } catch (error) {
      return this.#gone ?? failed(`channel: ${codeOf(error)}`)
    } finally {
      sending.leave = undefined
      this.#unopenedBytes -= left
    }
    if (sending.flight.over) return failed('timeout')
    return this.#confirmed(lane, sending)
  }

  async #confirmed(lane: Lane, sending: UnconfirmedSend): Promise<SendVerdict> {
    const held = sending.bytes + overhead
    let left = 0
    sending.returned = false
    const leave = (): void => {
      left = held
      this.#count(lane, held)
      if (lane.isForOne) this.#drop(lane)
      else if (this.#leftBytes >= leftMost) this.#drop(this.#fullest(lane))
    }
    sending.leave = leave // not in place: docs/decisions.md, what has ended
    lane.inFlight.add(sending)
    try {
      this.#unreturned.bytes += sending.body.length
      await lane.channel.basicPublish(sending.envelope, sending.body)
      // The client reports a returned message one turn after its confirmation.
      await turn()
      return sending.returned ? unroutable(sending) : { kind: 'delivered' }
    } catch (error) {
      if (codeOf(error) === 'NACK') return failed('rejected: a queue is full')
      this.#heard(lane, error)
      // The client may give the reason to another message in flight.
      await turn()
      return this.#gone ?? (lane.dropped ? 'again' : verdict(lane.closed, sending, lane.together === 1))
    } finally {
      sending.leave = undefined
      lane.inFlight.delete(sending)
      this.#count(lane, -left)
    }
  }

  #count(lane: Lane, bytes: number): void {
    lane.leftBytes += bytes
    if (lane.dropped) this.#droppedBytes += bytes
    else this.#leftBytes += bytes
  }

  /** The client holds the bytes of a dropped channel until the server has closed it. */
  #drop(lane: Lane): void {
    if (lane.dropped) return
    if (this.#droppedBytes >= leftMost)
      return this.#end(failed('connection_closed: the broker neither confirms nor closes channels'))
    this.#leftBytes -= lane.leftBytes
    this.#droppedBytes += lane.leftBytes
    lane.dropped = true
    void lane.channel.close()
  }

  #fullest(lane: Lane): Lane {
    let fullest = lane
    for (const each of this.#notClosed) {
      if (!each.dropped && each.leftBytes > fullest.leftBytes) fullest = each
    }
    return fullest
  }

  #end(why: Failed): void {
    if (this.#gone) return
    this.#gone = why
    this.#connection.unsafeDestroy()
    this.#onGone(why)
  }

  /** Stores the server's reason: other messages of the channel only learn that it is closed. */
  #heard(lane: Lane, error: unknown): void {
    if (lane.closed || !isError(error) || error.name !== 'AMQPChannelError') return
    const code = codeOf(error)
    if (code === 'CH_CLOSE') return
    lane.closed = { code, text: error.message }
    this.#maxBytes = maxSize(error.message) ?? this.#maxBytes
  }

  /** Sends one message after the other: if the channel is closed, the cause is then clear. */
  #inTurn(attempt: () => Promise<SendVerdict>): Promise<SendVerdict> {
    const mine = this.#last.then(attempt)
    this.#last = mine
    return mine
  }

  #lane(exchange: string | undefined): Promise<Lane> {
    const known = this.#lanes.get(exchange)
    this.#lanes.delete(exchange)
    if (!known) void this.#makeRoom()
    const forget = (): void => {
      if (this.#lanes.get(exchange) === lane) this.#lanes.delete(exchange)
    }
    const lane = known ?? this.#open(exchange === undefined, forget)
    this.#lanes.set(exchange, lane)
    return lane
  }

  async #open(isForOne: boolean, forget: () => void): Promise<Lane> {
    try {
      const channel = await this.#connection.acquire({ emitErrorsFromChannel: true })
      const lane: Lane = {
        channel,
        isForOne,
        inFlight: new Set(),
        dropped: false,
        together: 0,
        leftBytes: 0
      }
      this.#notClosed.add(lane)
      channel.on('error', (error: unknown) => this.#heard(lane, error))
      channel.on('basic.return', message => {
        for (const each of lane.inFlight) {
          if (each.envelope.messageId === message.messageId) each.returned = true
        }
      })
      channel.on('close', () => {
        lane.together = lane.inFlight.size
        this.#notClosed.delete(lane)
        forget()
      })
      await channel.confirmSelect()
      return lane
    } catch (error) {
      forget()
      throw error
    }
  }

  async #makeRoom(): Promise<void> {
    if (this.#lanes.size < lanesKept) return
    for (const [exchange, opening] of this.#lanes) {
      const lane = await opening.catch(() => undefined)
      if (!lane || lane.inFlight.size > 0 || this.#lanes.get(exchange) !== opening) continue
      this.#lanes.delete(exchange)
      await lane.channel.close()
      return
    }
  }
}
