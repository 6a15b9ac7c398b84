import { hostname } from 'node:os'
import { untilAborted, waitAtMost } from '../../runtime/with-timeout.ts'
import { Failure } from '../failure.ts'
import { link } from '../connection.ts'
import {
  receiptQueue,
  heldMost,
  type TakeReceipt,
  type ReceiptReaderDeps,
  type ReceiptMessage,
  anyOf,
  atATime,
  takeUntilDone,
  inHand,
  keepTaking,
  type InHand
} from '../receipts.ts'
import { opener, outcomeOf, type RedisConnection } from './connection.ts'
import { sleep } from '../../runtime/repeat.ts'
import { isError } from '../../runtime/text-of.ts'

const group = 'ackbox'
/** In a container the name is the same after a restart, so the process finds its unacknowledged entries at once. */
const consumer = `${hostname()}-${process.pid}`
/** The poll interval of an empty stream. `BLOCK` is not used: a blocked connection cannot send acknowledgements. */
const restMs = 250
/** An entry that is not acknowledged for this time is read again: its process is gone. */
const idleMs = 60_000
const waitMost = 1_000
/** A server that hangs keeps its connections and answers nothing. No command of the reader blocks. */
const silentMost = 10_000
// Times after an abort: for the receipts being handled, and for everything.
const finishMs = 500
const closeMs = 1_000
/** A receipt has a body and a few headers. */
const itemsMost = 50_000

interface Entry {
  id: string
  message: ReceiptMessage
}

/**
 * Receipts from a consumer group of the stream. Both are created if they do not exist. Field `body` is the receipt, every other
 * field a header. An entry is acknowledged and deleted once it is handled. Needs Redis 6.2.
 */
export async function readReceipts(
  { broker, guard, log }: ReceiptReaderDeps,
  takeReceipt: TakeReceipt,
  signal: AbortSignal,
  silentMs = silentMost
): Promise<void> {
  const way = link(broker, { guard, log }, opener(broker, { bytes: heldMost, items: itemsMost }, silentMs))
  const hand = inHand()
  const ask = { most: atATime }
  const over = new AbortController()
  // The entries of a late reply belong to this process, so a reply is waited for. A server that hangs sends none.
  const cut = new Promise<void>(resolve => {
    signal.addEventListener('abort', () => void sleep(closeMs, over.signal).then(resolve), { once: true })
  })
  const taking = keepTaking(log, { broker: broker.name }, waitMost, signal, async ({ onRead }) => {
    try {
      const connection = await way.client()
      await makeGroup(connection)
      await takeAll(connection, takeReceipt, hand, signal, ask, onRead)
      return undefined
    } catch (error) {
      // The entries may have had more bytes than may be held: fewer at a time now, and more again after each successful read.
      ask.most = Math.max(1, ask.most >> 2)
      if (way.current) way.drop(way.current)
      if (error instanceof Failure) {
        // The link logs that the broker is away.
        await sleep(waitMost, signal)
        return undefined
      }
      const outcome = outcomeOf(error)
      return outcome.kind === 'failed' ? outcome.reason : 'wrong_type: the key is not a stream'
    }
  })
  await Promise.race([taking, cut])
  over.abort()
  way.close()
}

async function makeGroup({ redis }: RedisConnection): Promise<void> {
  try {
    await redis.call('XGROUP', 'CREATE', receiptQueue, group, '0', 'MKSTREAM')
  } catch (error) {
    if (!(isError(error) && error.message.startsWith('BUSYGROUP'))) throw error
  }
}

/** Takes entries until the signal aborts. Rejects when the connection is gone. */
async function takeAll(
  { redis }: RedisConnection,
  takeReceipt: TakeReceipt,
  hand: InHand,
  signal: AbortSignal,
  ask: { most: number },
  onRead: () => void
): Promise<void> {
  const open = new Set<string>()
  const lost = new AbortController()
  const either = anyOf(signal, lost.signal)
  let nextClaim = 0
  // First the entries that this process had read when the connection broke, then new ones.
  let from = '0'
  const acknowledge = async ({ id }: Entry): Promise<void> => {
    // Both or neither: an entry that is acknowledged but not deleted would stay for ever.
    await redis.multi().xack(receiptQueue, group, id).xdel(receiptQueue, id).exec()
  }
  const take = async (entry: Entry): Promise<void> => {
    try {
      if (await takeUntilDone(takeReceipt, entry.message, either)) await acknowledge(entry)
    } catch (error) {
      lost.abort(error)
    } finally {
      open.delete(entry.id)
    }
  }
  const start = (entries: Entry[]): void => {
    for (const entry of entries) {
      // This process is still handling the entry, for longer than `idleMs`.
      if (open.has(entry.id)) continue
      hand.begin(entry.message, () => take(entry))
      open.add(entry.id)
    }
  }
  try {
    while (!either.aborted) {
      const room = Math.min(ask.most, hand.room())
      if (room === 0) {
        await untilAborted(either, hand.oneEnded())
        continue
      }
      if (performance.now() >= nextClaim) {
        const claim = [
          'XAUTOCLAIM',
          receiptQueue,
          group,
          consumer,
          String(idleMs),
          '0',
          'COUNT',
          String(room)
        ] as const
        const claimed = entriesOf(listOf(await redis.callBuffer(...claim))[1])
        start(claimed)
        nextClaim = claimed.length > 0 ? 0 : performance.now() + idleMs / 2
        if (claimed.length > 0) continue
      }
      const reading = [
        'XREADGROUP',
        'GROUP',
        group,
        consumer,
        'COUNT',
        String(room),
        'STREAMS',
        receiptQueue
      ] as const
      // RESP3 returns the name and its entries, RESP2 a list of such pairs.
      const [first, list] = listOf(await redis.callBuffer(...reading, from))
      const entries = entriesOf(Array.isArray(first) ? first[1] : list)
      start(entries)
      onRead()
      const last = entries.at(-1)
      if (from !== '>') from = last?.id ?? '>'
      else if (last) ask.most = Math.min(atATime, 2 * ask.most)
      else await sleep(restMs, signal)
    }
    if (lost.signal.aborted) throw lost.signal.reason as Error
  } finally {
    lost.abort()
    await waitAtMost(finishMs, hand.allEnded())
  }
}

const listOf = (reply: unknown): unknown[] => (Array.isArray(reply) ? reply : [])
const textOf = (value: unknown): string => (Buffer.isBuffer(value) ? value.toString() : '')

/** Parses entries `[id, [name, value, …]]`. An entry that was deleted meanwhile has only its id. */
function entriesOf(reply: unknown): Entry[] {
  return listOf(reply).map(each => {
    const [id, fields] = listOf(each)
    const message: ReceiptMessage = { body: new Uint8Array(), headers: {} }
    const all = listOf(fields)
    for (let at = 0; at + 1 < all.length; at += 2) {
      const name = textOf(all[at]).toLowerCase()
      const value = all[at + 1]
      if (name === 'body' && Buffer.isBuffer(value)) message.body = value
      else message.headers[name] = textOf(value)
    }
    return { id: textOf(id), message }
  })
}
