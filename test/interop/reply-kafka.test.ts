import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readReceipts } from '../../src/transport/kafka/receipts.ts'
import { receiptQueue as topic, type TakeReceipt } from '../../src/transport/receipts.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { broker, kafka, said, skip } from './kafka-server.ts'
import { stopwatch } from '../support/stopwatch.ts'
import { until } from '../support/until.ts'

function running(t: Test, url: string, answer: (text: string) => 'done' | 'later' = () => 'done') {
  const { lines, log } = said()
  const seen: { text: string; headers: Record<string, string> }[] = []
  const handle: TakeReceipt = async ({ body, headers }) => {
    const text = Buffer.from(body).toString()
    seen.push({ text, headers })
    return answer(text)
  }
  const end = new AbortController()
  const gate = guard({ allow: undefined, embedded: true, deny: [] })
  const over = readReceipts({ broker: broker(url), guard: gate, log }, handle, end.signal)
  const clock = stopwatch(t)
  const stop = async (): Promise<number> => {
    const began = clock()
    end.abort()
    await over
    return clock() - began
  }
  t.teardown(stop)
  return { lines, stop, texts: () => seen.map(each => each.text), seen }
}

t.test('receipts by Kafka', { skip }, async t => {
  const server = await kafka(t)
  const url = `kafka://ackbox:right-one@127.0.0.1:${server.login}`
  await server.create(topic, 2)

  await t.test('one is handled once, with its headers, and not again after a restart', async t => {
    const first = running(t, url)
    await server.publish(topic, [{ value: '{"a": 1.0}', headers: { 'Ackbox-Callback-Token': 'v1.abc' } }])
    await until('it is handled', () => first.seen.length === 1)
    t.strictSame(first.seen, [{ text: '{"a": 1.0}', headers: { 'ackbox-callback-token': 'v1.abc' } }])
    t.ok((await first.stop()) < 15_000)
    const second = running(t, url)
    await server.publish(topic, [{ value: 'b' }])
    await until('the next one is handled', () => second.seen.length > 0)
    t.strictSame(second.texts(), ['b'])
    await second.stop()
  })

  await t.test('later comes again and stops nobody; what was not done comes to the next one', async t => {
    const first = running(t, url, text => (text === 'off' ? 'later' : 'done'))
    await server.publish(topic, [
      { value: 'off' },
      ...Array.from({ length: 50 }, (_, i) => ({ value: `m${i}` }))
    ])
    await until(
      'one came again and all are seen',
      () => first.texts().filter(each => each === 'off').length >= 2 && first.texts().length >= 52
    )
    t.ok((await first.stop()) < 15_000)
    const second = running(t, url)
    await until('what was not done comes', () => second.texts().includes('off'))
    await second.stop()
  })

  await t.test('kill -9 of the broker loses nothing; trouble is said once', async t => {
    const one = running(t, url)
    await server.publish(topic, [{ value: 'before' }])
    await until('it is handled', () => one.texts().includes('before'))
    await server.server.kill()
    await sleep(1_000)
    await server.server.start()
    const back = stopwatch(t)
    await server.publish(topic, [{ value: 'after' }])
    await until('it is handled after the restart', () => one.texts().includes('after'))
    t.ok(back() < 40_000)
    t.ok(one.lines.length <= 2, JSON.stringify(one.lines))
    t.ok((await one.stop()) < 15_000)
  })

  await t.test('a broker that is down at the start is found when it is up', async t => {
    await server.server.kill()
    const one = running(t, url)
    await until('the trouble is told', () => one.lines.length === 1)
    await server.server.start()
    const back = stopwatch(t)
    await server.publish(topic, [{ value: 'up' }])
    await until('it is handled once the broker is up', () => one.texts().includes('up'))
    t.ok(back() < 40_000)
    t.same(
      one.lines.map(each => each[0]),
      ['receipts.unavailable', 'receipts.available']
    )
    await one.stop()
  })
})
