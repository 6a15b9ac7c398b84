import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readReceipts } from '../../src/transport/rocketmq/receipts.ts'
import type { TakeReceipt } from '../../src/transport/receipts.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { sendContext } from '../transport/send-context.ts'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import { login, rocketmqServer, transportTo } from './rocketmq-server.ts'

t.setTimeout(2_400_000)

type Answer = (text: string, times: number) => 'done' | 'later'

function running(t: Test, url: string, answer: Answer = () => 'done') {
  const lines: string[] = []
  const seen: { text: string; token: string | undefined }[] = []
  const handle: TakeReceipt = async ({ body, headers }) => {
    const text = Buffer.from(body).toString()
    seen.push({ text, token: headers['ackbox-callback-token'] })
    return answer(text, seen.filter(each => each.text === text).length)
  }
  const end = new AbortController()
  const say = (fields: object, message: string) => void lines.push(`${message} ${JSON.stringify(fields)}`)
  const deps = {
    broker: parseBroker('rocketmq', url) as Broker,
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    log: { info: say, warn: say }
  }
  const over = readReceipts(deps, handle, end.signal)
  const stop = async (): Promise<void> => {
    end.abort()
    await over
  }
  t.teardown(stop)
  const texts = () => seen.map(each => each.text)
  return { lines, seen, stop, texts, has: (text: string) => texts().includes(text) }
}

t.test('receipts by RocketMQ', { skip: without('java', 'mvn') }, async t => {
  const server = await rocketmqServer(t)
  const url = `rocketmq://${login}@127.0.0.1:${server.port}`
  const producer = transportTo(url)
  t.teardown(() => producer.close())
  const write = async (...bodies: string[]): Promise<void> => {
    for (const body of bodies) {
      const headers = () => ({ 'Ackbox-Callback-Token': `token of ${body.slice(0, 20)}` })
      await until('it is stored', async () => {
        const outcome = await producer.send({ topic: 'ackbox-receipts', body }, { ...sendContext(), headers })
        return outcome.kind === 'delivered'
      })
    }
  }

  await t.test('one is handled once, with its headers, and not again after a restart', async t => {
    const first = running(t, url)
    await write('{"n":"é你"}')
    await until('it is handled', () => first.seen.length === 1)
    t.strictSame(first.seen, [{ text: '{"n":"é你"}', token: 'token of {"n":"é你"}' }])
    await first.stop()
    const second = running(t, url)
    await write('b')
    await until('the next one is handled', () => second.has('b'))
    t.strictSame(second.texts(), ['b'])
    t.same([...first.lines, ...second.lines], [])
    await second.stop()
  })

  await t.test('later comes again and stops nobody; what was not done comes to the next one', async t => {
    const first = running(t, url, text => (text === 'off' ? 'later' : 'done'))
    await write('off', ...Array.from({ length: 150 }, (_, i) => `m${i}`))
    const times = () => first.texts().filter(each => each === 'off').length
    await until('all are handled', () => times() >= 2 && first.texts().length - times() === 150)
    await first.stop()
    const second = running(t, url)
    await until('the next one has it', () => second.has('off'))
    t.same(second.texts(), ['off'])
    await second.stop()
  })

  await t.test('one in hand for longer than RocketMQ waits is not given to another', async t => {
    const since = performance.now()
    const one = running(t, url, () => (performance.now() - since < 70_000 ? 'later' : 'done'))
    await write('long')
    await until('it is in hand', () => one.seen.length > 0)
    const other = running(t, url)
    await until('it is done', () => performance.now() - since > 72_000)
    t.same(other.texts(), [])
    await one.stop()
    await sleep(1)
    await other.stop()
  })

  await t.test('kill -9 of the broker loses nothing; trouble is said once', async t => {
    const one = running(t, url)
    await write('before')
    await until('it is handled', () => one.has('before'))
    await server.server.kill()
    await until('it is said', () => one.lines.length === 1)
    await server.server.start()
    await write('after')
    await until('it is handled', () => one.has('after'))
    await until('the end of the trouble is said', () => one.lines.length > 1)
    t.match(one.lines, only(/^receipts.unavailable/, /^receipts.available/))
    await one.stop()
  })

  await t.test('a message larger than any receipt is not read, and stops nobody', async t => {
    const one = running(t, url)
    await write('x'.repeat(3_000_000), 'small')
    await until('the small one is handled', () => one.has('small'))
    await until('the large one is said', () => one.lines.length > 0)
    t.match(one.lines[0], /a message of more than 2097152 bytes/)
    t.notOk(one.texts().some(text => text.length > 1_000))
    await one.stop()
  })

  await t.test('a wrong login is said once', async t => {
    const one = running(t, `rocketmq://ackbox:wrong@127.0.0.1:${server.port}`)
    await until('it is said', () => one.lines.length > 0)
    await one.stop()
    t.match(one.lines, only(/credentials/))
  })
})
