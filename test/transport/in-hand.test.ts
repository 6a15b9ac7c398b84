// The receipts that a reader may have in hand at a time.
import { once } from 'node:events'
import t from 'tap'
import { guard } from '../../src/transport/egress/guard.ts'
import { startReceiptReaders } from '../../src/transport/receipt-readers.ts'
import {
  type ReceiptMessage,
  type ReaderEvents,
  anyOf,
  keepTaking,
  takeUntilDone,
  inHand
} from '../../src/transport/receipts.ts'

const ofBytes = (bytes: number, headers = {}): ReceiptMessage => ({ body: new Uint8Array(bytes), headers })

/** Begins a receipt. The returned function ends it. */
function begin(hand: ReturnType<typeof inHand>, message = ofBytes(10)): () => void {
  let end = (): void => {}
  hand.begin(message, () => new Promise<void>(resolve => (end = resolve)))
  return end
}

t.test('a hundred receipts are in hand, and one more when one has ended', async t => {
  const hand = inHand()
  const ends = Array.from({ length: 100 }, () => begin(hand))
  t.equal(hand.room(), 0)
  ends[0]?.()
  await hand.oneEnded()
  t.equal(hand.room(), 1)
  for (const end of ends) end()
  await hand.allEnded()
  t.equal(hand.room(), 100)
})

t.test('what waits for an end leaves nothing at a receipt that never ends', async t => {
  const hand = inHand()
  begin(hand)
  const added = new Map<Promise<unknown>, number>()
  const { then } = Promise.prototype
  t.intercept(Promise.prototype, 'then', {
    value(this: Promise<unknown>, ...given: Parameters<typeof then>) {
      added.set(this, (added.get(this) ?? 0) + 1)
      return then.apply(this, given)
    }
  })
  for (let nth = 0; nth < 100; nth++) {
    const end = begin(hand)
    const ended = hand.oneEnded()
    end()
    await ended
  }
  t.ok(Math.max(...added.values()) < 10, 'no promise got a reaction from each of them')
  t.equal(hand.room(), 99)
})

t.test('large receipts leave no room for more, and what is too much is not begun', async t => {
  const hand = inHand()
  const ends = Array.from({ length: 4 }, () => begin(hand, ofBytes(2_000_000)))
  t.equal(hand.room(), 0)
  t.throws(() => begin(hand, ofBytes(2_000_000)), /bytes of messages at a time/)
  ends[0]?.()
  await hand.oneEnded()
  begin(hand, ofBytes(2_000_000))()
  for (const end of ends) end()
  await hand.allEnded()
})

t.test('what headers hold counts too', async t => {
  const hand = inHand()
  begin(hand, ofBytes(0, { long: 'x'.repeat(4_000_000) }))
  t.throws(() => begin(hand, ofBytes(1_000_000)), /bytes of messages at a time/)
})

t.test(
  'one that is larger than all that may be held is handled alone: it would come again for ever',
  async t => {
    const hand = inHand()
    begin(hand, ofBytes(10_000_000))
    t.throws(() => begin(hand), /bytes of messages at a time/)
  }
)

t.test('one whose handling breaks is in hand no more', async t => {
  const hand = inHand()
  hand.begin(ofBytes(10), () => Promise.reject(new Error('broken')))
  await hand.allEnded()
  t.equal(hand.room(), 100)
})

t.test('a receipt is handed over until it is done, or until nobody waits for it any more', async t => {
  const verdicts = ['later', 'done'] as const
  let nth = 0
  t.equal(
    await takeUntilDone(async () => verdicts[nth++] ?? 'done', ofBytes(1), new AbortController().signal),
    true
  )
  t.equal(nth, 2)
  const stop = new AbortController()
  const handling = takeUntilDone(async () => (stop.abort(), 'later'), ofBytes(1), stop.signal)
  t.equal(await handling, false)
})

t.test('a hundred receipts that must come again print no warning of a leak', async t => {
  const warnings: string[] = []
  const keep = ({ message }: Error): void => void warnings.push(message)
  process.on('warning', keep)
  t.teardown(() => process.off('warning', keep))
  const [stop, lost] = [new AbortController(), new AbortController()]
  const { done } = await startReceiptReaders({
    brokers: [],
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    log: { info() {}, warn() {}, debug() {} },
    take: async () => {},
    faultOf: () => 'ours',
    signal: stop.signal
  })
  await done
  // Receipts of some brokers wait for the stop alone, those of others also for the end of their connection
  const waiting = [stop.signal, anyOf(stop.signal, lost.signal)].flatMap(signal =>
    Array.from({ length: 100 }, () => takeUntilDone(async () => 'later', ofBytes(1), signal))
  )
  await new Promise(resolve => setImmediate(resolve))
  lost.abort()
  stop.abort()
  t.same([...new Set(await Promise.all(waiting))], [false])
  t.same(warnings, [])
})

t.test('a queue that opens but cannot be read is said once, until it is read or stays open', async t => {
  for (const [how, recover] of [
    ['read', ({ onRead }: ReaderEvents) => onRead()],
    ['open', () => {}]
  ] as const) {
    const said: string[] = []
    const stop = new AbortController()
    const say = (_: object, event: string): void => {
      said.push(event)
      if (event === 'receipts.available') stop.abort()
    }
    let opened = 0
    await keepTaking({ info: say, warn: say }, {}, 10, stop.signal, async events => {
      events.onOpen()
      if (++opened <= 5) return 'credentials'
      recover(events)
      if (!stop.signal.aborted) await once(stop.signal, 'abort')
      return undefined
    })
    t.equal(opened, 6)
    t.same(said, ['receipts.unavailable', 'receipts.available'], how)
  }
})
