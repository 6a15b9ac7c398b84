// A consumer of each queue with `once`: every message arrives twice, by an operator's redelivery, and its work is done once.
import path from 'node:path'
import rocketmq from 'rocketmq-client-nodejs'
import t, { type Test } from 'tap'
import { receiver, type Message } from '../../src/consumer/consumer.ts'
import { signingSecret } from '../../src/domain/tokens.ts'
import { grant, postgresBank } from '../consumer/databases.ts'
import { without } from '../support/program.ts'
import { call, eachOf, folder, postUntilTaken, settled, start, untilHeard } from '../support/service.ts'
import { until } from '../support/until.ts'
import { consumers } from './consumers.ts'
import { accessKey, accessSecret, login, rocketmqServer } from './rocketmq-server.ts'

t.setTimeout(2_400_000)

type Take = (message: Message) => Promise<void>
/** Starts the consumer. Returns the URL of the broker. */
type Consume = (t: Test, take: Take) => Promise<string>

const queues: Record<string, { needs: string[]; consume: Consume }> = {
  rocketmq: { needs: ['java', 'mvn'], consume: byRocketmq }
}
for (const [name, { needs, start: consume }] of Object.entries(consumers))
  queues[name] = {
    needs,
    consume: async (t, take) => (await consume(t, (_, __, message) => void take(message))).url
  }

const secret = 'the secret of a test, of 32 characters'
const taskNos = Array.from({ length: 30 }, (_, nth) => `twice-${nth}`)

for (const [name, { needs, consume }] of Object.entries(queues))
  t.test(`${name}: every message twice, and its work once`, { skip: without(...needs) }, async t => {
    const bank = await postgresBank(t)
    const refused: unknown[] = []
    const points = receiver({
      secrets: [signingSecret(secret, `by-${name}`)],
      db: bank.db,
      consumer: 'points',
      onError: err => void refused.push(err)
    })
    const seen: boolean[] = []
    const broker = await consume(t, async message => {
      try {
        const { first } = await bank.db.begin(native =>
          points.once(bank.db.within(native), message, async () => void (await bank.run(native, grant)))
        )
        seen.push(first)
      } catch (err) {
        refused.push(err)
      }
    })
    const { url } = await start(t, {
      DATA_DIR: folder(t),
      SECRET: secret,
      HANDLERS_DIR: path.resolve(import.meta.dirname, 'handlers'),
      ...Object.fromEntries(
        Object.keys(queues).map(each => [
          `BROKER_${each.toUpperCase().replaceAll('-', '_')}`,
          each === name
            ? broker
            : `${each === 'redis-stream' ? 'redis' : each === 'rabbitmq' ? 'amqp' : each}://127.0.0.1:1`
        ])
      )
    })
    const stop = new AbortController()
    const running = points.run({ signal: stop.signal, pollMs: 100 })
    t.teardown(async () => {
      stop.abort()
      await running
    })
    const handled = async (): Promise<void> => {
      const ended = await eachOf(taskNos, taskNo => settled(url, taskNo))
      for (const { body } of ended)
        t.match(body, { status: 'HANDLED', deliveries: [{ handledBy: 'receipt' }] })
    }
    await eachOf(taskNos, taskNo =>
      postUntilTaken(() => url, { taskNo, messageCode: `by.${name}`, messageBody: { key: taskNo } })
    )
    await handled()
    const once = seen.length
    await eachOf(taskNos, taskNo =>
      untilHeard(() => call(`${url}/tasks/${taskNo}/redeliver`, { force: true }))
    )
    await until('everything has come again', () => seen.length >= once + taskNos.length)
    await handled()
    t.same(refused, [])
    t.equal(seen.filter(Boolean).length, taskNos.length)
    t.ok(seen.length >= 2 * taskNos.length, `${seen.length} messages`)
    t.equal(await bank.granted(), 7 * taskNos.length)
  })

async function byRocketmq(t: Test, take: Take): Promise<string> {
  const { port } = await rocketmqServer(t)
  const consumer = new Reader({
    consumerGroup: 'points',
    endpoints: `127.0.0.1:${port}`,
    namespace: '',
    logger: { info() {}, warn() {}, error() {}, debug() {} },
    sessionCredentials: { accessKey, accessSecret },
    subscriptions: new Map([['orders', '*']]),
    // Its own limit is 3 s, which a busy machine does not keep.
    requestTimeout: 60_000,
    awaitDuration: 500
  })
  await consumer.startup()
  let isOver = false
  const reading = (async () => {
    while (!isOver)
      for (const message of await consumer.receive(32, 60_000)) {
        await take(message)
        await consumer.ack(message)
      }
  })()
  t.teardown(async () => {
    isOver = true
    await reading
    await consumer.shutdown()
  })
  return `rocketmq://${login}@127.0.0.1:${port}`
}

/** A session that was shut down has no listeners: its error when the server ends would end the process. So one is added. */
class Reader extends rocketmq.SimpleConsumer {
  override createTelemetryStream(...to: Parameters<rocketmq.SimpleConsumer['createTelemetryStream']>) {
    const stream = super.createTelemetryStream(...to)
    const remove = stream.removeAllListeners.bind(stream)
    stream.removeAllListeners = () => remove().on('error', () => {})
    return stream
  }
}
