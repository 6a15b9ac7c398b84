import { Readable } from 'node:stream'
import t from 'tap'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { until } from '../support/until.ts'
import { importRows } from '../../src/relay/import.ts'
import { postRows } from '../../src/relay/post.ts'
import { relay } from '../../src/relay/relay.ts'
import type { RelayRow } from '../../src/relay/source.ts'

const row: RelayRow = {
  id: '1',
  taskNo: 'order-1',
  messageCode: 'order.paid',
  messageBody: '1',
  sceneType: null,
  deliverStartTime: null,
  delayMs: null,
  deliverBefore: null,
  orderingKey: null,
  needCallback: null,
  retryTimes: null,
  bizType: null,
  bizKey: null,
  uniqueBiz: null,
  after: null,
  extend: null,
  traceparent: null
}
const nothing = (): void => {}

t.test('a Retry-After of more than an hour is ignored, as the client of producers does', async t => {
  const fake = await fakeAckbox(t)
  const rows: [header: string | undefined, retryAfterMs: number | undefined][] = [
    ['0', 0],
    ['7', 7_000],
    ['3600', 3_600_000],
    ['86400', undefined],
    ['2592000', undefined],
    ['-1', undefined],
    ['soon', undefined],
    [undefined, undefined]
  ]
  for (const [header, retryAfterMs] of rows) {
    fake.script = (_, response) =>
      answer(response, 503, 'maintenance', header === undefined ? {} : { 'retry-after': header })
    await t.rejects(
      postRows({ url: fake.url, key: undefined, timeoutMs: 10_000 }, [row]),
      { name: 'TargetAway', retryAfterMs },
      String(header)
    )
  }
})

t.test('a maintenance page that asks for thirty days does not stop the relay, nor make it spin', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response) => answer(response, 503, 'maintenance', { 'retry-after': '2592000' })
  const waits: unknown[] = []
  const stop = new AbortController()
  const running = relay(
    {
      source: {
        check: () => Promise.resolve(),
        shards: () => Promise.resolve([]),
        async postShare(_, __, post) {
          await post([row])
          return { seen: 1, removed: 1 }
        },
        waiting: () => Promise.resolve({ rows: 1, oldestS: 0, rejected: 0 }),
        retryRejected: () => Promise.resolve(0),
        close: () => Promise.resolve()
      },
      target: { url: fake.url, key: undefined, timeoutMs: 10_000 },
      log: {
        debug: nothing,
        info: nothing,
        error: nothing,
        warn: (about: { waitMs?: number }) => waits.push(about.waitMs)
      },
      batch: 10,
      concurrency: 1,
      onBatch: nothing,
      onHealth: nothing
    },
    stop.signal
  )
  await until('it has tried three times', () => waits.length >= 3)
  stop.abort()
  await running
  for (const waitMs of waits) t.ok(Number(waitMs) <= 30_000, `it waits ${String(waitMs)} ms`)
})

t.test('an import waits no longer than its patience, whatever Ackbox asks for', async t => {
  const fake = await fakeAckbox(t)
  fake.script = (_, response) => answer(response, 503, 'maintenance', { 'retry-after': '3600' })
  let tries = 0
  const began = performance.now()
  const importing = importRows(
    {
      target: { url: fake.url, key: undefined, timeoutMs: 10_000 },
      reject: nothing,
      onBatch: nothing,
      onAway: () => tries++,
      patienceMs: 500
    },
    Readable.from([[row]]),
    AbortSignal.timeout(20_000)
  )
  await t.rejects(importing, { name: 'TargetAway' })
  t.ok(tries > 0, 'it has tried again')
  t.ok(performance.now() - began < 10_000)
})
