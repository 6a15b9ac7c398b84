// The whole path through queues: POST /tasks, a real broker, a consumer, its receipt, HANDLED; and failures on it.
import { setTimeout as sleep } from 'node:timers/promises'
import path from 'node:path'
import t, { type Test } from 'tap'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'
import {
  call,
  eachOf,
  folder,
  postUntilTaken,
  recorded,
  settled,
  start,
  type Process
} from '../support/service.ts'
import { consumers, type Consumed } from './consumers.ts'

t.setTimeout(2_400_000)

/** How long a broker is down, in addition to the time of its start. */
const outageSeconds = Number(process.env['OUTAGE_SECONDS'] ?? 3)
const handlers = path.resolve(import.meta.dirname, 'handlers')
const variable = (name: string): string => `BROKER_${name.toUpperCase().replaceAll('-', '_')}`
/** Addresses without a server: a broker that is down must not disturb the others. */
const nowhere: Record<string, string> = {
  rabbitmq: 'amqp://127.0.0.1:1',
  kafka: 'kafka://127.0.0.1:1',
  nats: 'nats://127.0.0.1:1',
  rocketmq: 'rocketmq://127.0.0.1:1',
  'redis-stream': 'redis://127.0.0.1:1'
}

async function service(t: Test, name: string, broker: Consumed, receiptsFrom = ''): Promise<Process> {
  const brokers = Object.entries({ ...nowhere, [name]: broker.url })
  return start(t, {
    DATA_DIR: folder(t),
    HANDLERS_DIR: handlers,
    RECEIPTS_FROM: receiptsFrom,
    ...Object.fromEntries(brokers.map(([each, url]) => [variable(each), url]))
  })
}

interface Seen {
  headers: Record<string, string>
  body: string
}
const receiptOf = ({ headers }: Seen): string =>
  JSON.stringify({ taskNo: headers['ackbox-task-no'], messageCode: headers['ackbox-message-code'] })

async function sendReceipt(seen: Seen): Promise<void> {
  for (let tries = 0; tries < 20; tries++) {
    const answer = await fetch(seen.headers['ackbox-callback-url'] ?? '', {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        'ackbox-callback-token': seen.headers['ackbox-callback-token'] ?? ''
      },
      body: receiptOf(seen)
    }).catch(() => undefined)
    await answer?.arrayBuffer()
    if (answer && answer.status < 500) return
    await sleep(200)
  }
}

for (const [name, { needs, start: startConsumer }] of Object.entries(consumers)) {
  const skip = without(...needs)
  const post = (url: string, taskNo: string, messageCode: string, messageBody: object) =>
    postUntilTaken(() => url, { taskNo, messageCode, messageBody })

  t.test(`${name}: a consumer's receipt, by HTTP, makes it HANDLED`, { skip }, async t => {
    const seen: Seen[] = []
    const broker = await startConsumer(t, (headers, body) => {
      seen.push({ headers, body })
      void sendReceipt({ headers, body })
    })
    const { url } = await service(t, name, broker)
    t.ok((await post(url, 'one', `by.${name}`, { key: 'a' })).status < 300)
    const { body } = await recorded(url, 'one')
    t.match(body, { status: 'HANDLED', deliveries: [{ handledBy: 'receipt' }] })
    // A broker that has just started may answer the first attempt too late.
    const { deliveries } = body as { deliveries: { attempts: { outcome: string }[] }[] }
    const attempts = deliveries[0]?.attempts ?? []
    t.ok(attempts.some(one => one.outcome === 'delivered'))
    t.ok(seen.length >= 1 && seen.length <= attempts.length, `${seen.length} came`)
    t.match(seen[0], {
      body: '{"key":"a"}',
      headers: { 'ackbox-task-no': 'one', 'ackbox-attempt': String, 'webhook-signature': /^v1,/ }
    })
  })

  t.test(`${name}: an outage loses none of 1,000 tasks`, { skip }, async t => {
    const seen = new Map<string, number>()
    const broker = await startConsumer(t, (headers, body) => {
      const id = headers['webhook-id'] ?? ''
      seen.set(id, (seen.get(id) ?? 0) + 1)
      void sendReceipt({ headers, body })
    })
    const { url } = await service(t, name, broker)
    const taskNos = Array.from({ length: 1_000 }, (_, i) => `outage-${i}`)
    const first = taskNos.slice(0, 300)
    await eachOf(first, taskNo => post(url, taskNo, `by.${name}`, { key: taskNo }))
    await broker.server.kill()
    const posted = await eachOf(taskNos.slice(300), taskNo =>
      post(url, taskNo, `by.${name}`, { key: taskNo })
    )
    t.same(new Set(posted.map(each => each.status)), new Set([201]), 'accepted while the broker is down')
    await sleep(outageSeconds * 1_000)
    await broker.server.start()
    const ended = await eachOf(taskNos, taskNo => settled(url, taskNo))
    t.same(new Set(ended.map(each => each.body?.['status'])), new Set(['HANDLED']))
    t.equal(seen.size, 1_000)
    // A task arrives more than once only if the confirmation or receipt of an attempt was lost.
    const twice = [...seen.values()].filter(count => count > 1).length
    const again = ended.filter(each =>
      ((each.body?.['deliveries'] ?? []) as { attempt: number }[]).some(one => one.attempt > 1)
    ).length
    t.ok(twice <= again, `${twice} came twice, ${again} were tried again`)
  })

  if (name !== 'redis-stream') {
    t.test(`${name}: a consumer without HTTP sends its receipts by the queue`, { skip }, async t => {
      const back: { reply?: Consumed['reply'] } = {}
      const broker = await startConsumer(t, (headers, body) => {
        void back.reply?.('no receipt at all', 'no token')
        void back.reply?.(receiptOf({ headers, body }), headers['ackbox-callback-token'] ?? '')
      })
      back.reply = broker.reply
      const running = await service(t, name, broker, name)
      const taskNos = Array.from({ length: 50 }, (_, i) => `reply-${i}`)
      await eachOf(taskNos, taskNo => post(running.url, taskNo, `by.${name}`, { key: taskNo }))
      const ended = await eachOf(taskNos, taskNo => settled(running.url, taskNo))
      t.same(new Set(ended.map(each => each.body?.['status'])), new Set(['HANDLED']))
      t.match(running.output(), /receipt\.refused/, 'what is no receipt is said')
      t.same(await running.kill('SIGTERM'), { code: 0, signal: null }, 'and it ends politely')
    })

    t.test(`${name}: a target that is not there ends FAILED, with an alarm`, { skip }, async t => {
      const broker = await startConsumer(t, () => {})
      const { url } = await service(t, name, broker)
      await post(url, 'lost', 'nowhere', { only: name })
      const { body } = await settled(url, 'lost')
      t.match(body, { status: 'FAILED' })
      const failed = ((body?.['deliveries'] ?? []) as { downstream: string; attempts: unknown[] }[]).find(
        each => each.downstream === `nowhere-${name}`
      )
      t.match(failed, {
        status: 'FAILED',
        reason: 'SEND_EXHAUSTED',
        attempts: only({ reason: /^target_missing/ }, { reason: /^target_missing/ })
      })
      t.match((await call(`${url}/alarms`)).body, {
        alarms: only({ downstream: `nowhere-${name}`, kind: 'FAILED' })
      })
    })
  }
}
