// Runs the receivers of docs/receivers.md, each against a real service.
import path from 'node:path'
import { Webhook } from 'standardwebhooks'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { signingSecret } from '../../src/domain/tokens.ts'
import { program, without, type Program } from '../support/program.ts'
import { dataFolder } from '../support/cluster.ts'
import { call, secret, settled, start } from '../support/service.ts'

const examples = path.resolve(import.meta.dirname, '../../../examples/receivers')
const receivers = [
  { name: 'node', command: process.execPath, file: 'receiver.mjs' },
  { name: 'java', command: 'java', file: 'Receiver.java' },
  { name: 'python', command: 'python3', file: 'receiver.py' }
]
const body = { orderId: '1001', note: 'né à Zürich, 支付' }

interface Running {
  name: string
  url: string
  secret: string
  running: Program
}

t.test('the receivers of the docs verify, handle once and send their receipts', async t => {
  const port = String(await freePort())
  const ackbox = `http://127.0.0.1:${port}`
  const up: Running[] = []
  const env: Record<string, string> = {}
  for (const { name, command, file } of receivers) {
    env[`${name.toUpperCase()}_RECEIVER`] = 'http://127.0.0.1:9'
    const missing = without(command)
    if (missing) {
      t.comment(`SKIP ${file}: ${missing}`)
      continue
    }
    const own = signingSecret(secret, `in-${name}`)
    const settings = { SIGNING_SECRET: own, ACKBOX_URL: ackbox, PORT: '0' }
    const running = program(t, command, [path.join(examples, file)], { env: settings })
    const [, at] = await running.said(/^listening (\d+)$/)
    const url = `http://127.0.0.1:${at}`
    env[`${name.toUpperCase()}_RECEIVER`] = url
    up.push({ name, url, secret: own, running })
  }
  await start(t, {
    ...env,
    PORT: port,
    SECRET: secret,
    HANDLERS_DIR: path.resolve(import.meta.dirname, 'handlers'),
    DATA_DIR: await dataFolder(t),
    DEMO: 'off',
    LOG_LEVEL: 'info'
  })
  for (const receiver of up) {
    await t.test(`${receiver.name}: a task is HANDLED by its receipt`, t => handles(t, ackbox, receiver))
    await t.test(`${receiver.name}: nobody else can make it handle anything`, t => refuses(t, receiver))
  }
})

async function handles(t: Test, ackbox: string, { name, running }: Running): Promise<void> {
  const taskNo = `example-${name}`
  const posted = { taskNo, messageCode: 'example.paid', sceneType: name, messageBody: body }
  t.equal((await call(`${ackbox}/tasks`, posted)).status, 201, 'it is accepted')
  const first = deliveryOf((await settled(ackbox, taskNo)).body, name)
  t.match(first, { status: 'HANDLED', handledBy: 'receipt', attempt: 1 })
  const [line = ''] = handledLines(running)
  t.equal(line.split(' ').slice(3).join(' '), JSON.stringify(body), 'it saw the very text that was posted')

  const again = await call(`${ackbox}/tasks/${taskNo}/redeliver`, { force: true })
  t.equal(again.status, 200, 'an operator delivers it again')
  const second = deliveryOf((await settled(ackbox, taskNo)).body, name)
  t.match(second, { status: 'HANDLED', handledBy: 'receipt', attempt: 2 }, 'the duplicate has its receipt')
  t.equal(handledLines(running).length, 1, 'and was handled once')
}

async function refuses(t: Test, { url, secret: own, running }: Running): Promise<void> {
  const before = handledLines(running).length
  const now = new Date()
  const text = JSON.stringify(body)
  const stranger = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
  const sign = (key: string, at: Date, signed = text): string =>
    new Webhook(key).sign('delivery-1', at, signed)

  t.equal(await post(url, now, sign(stranger, now), text), 401, "a stranger's signature")
  t.equal(await post(url, now, sign(own, now), text.replace('1001', '1002')), 401, 'another body')
  t.equal(await post(url, new Date(0), sign(own, now), text), 401, 'another time')
  const old = new Date(now.getTime() - 600_000)
  t.equal(await post(url, old, sign(own, old), text), 401, 'one of ten minutes ago, played back')
  t.equal(await post(url, now, 'v1,', text), 401, 'an empty signature')
  t.equal(await post(url, now, sign(own, now).replace('v1,', 'v2,'), text), 401, 'an unknown version')
  const seconds = Math.floor(now.getTime() / 1_000)
  const whole = sign(own, now, `${seconds}.${text}`)
  t.equal(
    await post(url, now, whole, text, `delivery-1.${seconds}`),
    401,
    'a signed body whose beginning is given as the time, behind an id that ends with the time'
  )
  t.equal(handledLines(running).length, before, 'none of them was handled')

  const rotating = `${sign(stranger, now)} ${sign(own, now)}`
  t.equal(await post(url, now, rotating, text), 200, 'during a rotation one of two signatures is enough')
}

const handledLines = ({ lines }: Program): string[] => lines.filter(line => line.startsWith('handled '))

function deliveryOf(task: { [name: string]: unknown } | null, name: string): unknown {
  const deliveries = task?.['deliveries'] as { downstream: string }[] | undefined
  return deliveries?.find(one => one.downstream === `in-${name}`)
}

async function post(
  url: string,
  at: Date,
  signature: string,
  text: string,
  id = 'delivery-1'
): Promise<number> {
  const answer = await fetch(`${url}/orders/1001`, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
      'webhook-signature': signature,
      'ackbox-task-no': 'by-hand'
    },
    body: text
  })
  await answer.arrayBuffer()
  return answer.status
}
