// POST /tasks, a real RocketMQ, the Java consumer of examples/, its receipt: HANDLED; and a topic that does not exist.
import path from 'node:path'
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'
import { call, eachOf, folder, postUntilTaken, settled, start } from '../support/service.ts'
import { javaExample } from './java.ts'
import { accessKey, accessSecret, login, rocketmqServer } from './rocketmq-server.ts'

t.setTimeout(2_400_000)

t.test(
  'tasks by RocketMQ to a Java consumer end HANDLED by its receipts',
  { skip: without('java', 'mvn') },
  async t => {
    const { port } = await rocketmqServer(t)
    const ours = String(await freePort())
    const { url } = await start(t, {
      PORT: ours,
      DATA_DIR: folder(t),
      HANDLERS_DIR: path.resolve(import.meta.dirname, 'handlers'),
      BROKER_ROCKETMQ: `rocketmq://${login}@127.0.0.1:${port}`,
      // These brokers are down, which must have no effect.
      BROKER_RABBITMQ: 'amqp://127.0.0.1:1',
      BROKER_KAFKA: 'kafka://127.0.0.1:1',
      BROKER_NATS: 'nats://127.0.0.1:1',
      BROKER_REDIS_STREAM: 'redis://127.0.0.1:1'
    })
    await javaExample(t, 'ackbox.example.rocketmq.Receiver', {
      ENDPOINTS: `127.0.0.1:${port}`,
      TOPIC: 'orders',
      ACCESS_KEY: accessKey,
      SECRET_KEY: accessSecret,
      ACKBOX_URL: url
    })
    const taskNos = Array.from({ length: 50 }, (_, i) => `java-${i}`)
    await eachOf(taskNos, taskNo =>
      postUntilTaken(() => url, { taskNo, messageCode: 'by.rocketmq', messageBody: { key: taskNo } })
    )
    const ended = await eachOf(taskNos, taskNo => settled(url, taskNo))
    for (const { body } of ended) t.match(body, { status: 'HANDLED', deliveries: [{ handledBy: 'receipt' }] })

    await postUntilTaken(() => url, {
      taskNo: 'lost',
      messageCode: 'nowhere',
      messageBody: { only: 'rocketmq' }
    })
    t.match((await settled(url, 'lost')).body, { status: 'FAILED' })
    t.match((await call(`${url}/alarms`)).body, {
      alarms: only({ downstream: 'nowhere-rocketmq', kind: 'FAILED' })
    })
  }
)
