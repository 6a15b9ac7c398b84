import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { json } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import t from 'tap'
import { parcel } from '../transport/parcel.ts'
import { accessKey, accessSecret, login, rocketmqServer, transportTo } from './rocketmq-server.ts'
import { without } from './server.ts'

const skip = without('java', 'mvn')

t.test('the Java example handles a delivery once and sends a receipt each time', { skip }, async t => {
  const project = 'examples/java'
  const built = spawnSync(
    'mvn',
    ['-B', '-q', '-f', project, 'compile', 'dependency:copy-dependencies', '-DincludeScope=runtime'],
    { encoding: 'utf8' }
  )
  if (built.status !== 0) throw new Error(built.stdout + built.stderr)

  const receipts: { token: unknown; body: unknown }[] = []
  const ackbox = createServer((request, response) => {
    void json(request).then(body => {
      receipts.push({ token: request.headers['ackbox-callback-token'], body })
      response.end('{}')
    })
  }).listen(0, '127.0.0.1')
  await once(ackbox, 'listening')
  t.teardown(() => ackbox.close())

  const { port } = await rocketmqServer(t)
  const home = mkdtempSync(join(tmpdir(), 'ackbox-java-'))
  const java = spawn(
    'java',
    [
      `-Drocketmq.log.root=${home}`,
      '-cp',
      `${project}/target/classes:${project}/target/dependency/*`,
      'ackbox.example.rocketmq.Receiver'
    ],
    {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: {
        ...process.env,
        ENDPOINTS: `127.0.0.1:${port}`,
        TOPIC: 'orders',
        ACCESS_KEY: accessKey,
        SECRET_KEY: accessSecret,
        ACKBOX_URL: `http://127.0.0.1:${(ackbox.address() as AddressInfo).port}`
      }
    }
  )
  let said = ''
  java.stdout.on('data', (chunk: Buffer) => (said += chunk.toString()))
  java.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()))
  t.teardown(async () => {
    const gone = once(java, 'exit')
    if (java.kill('SIGKILL')) await gone
    rmSync(home, { recursive: true, force: true })
  })
  const until = async (is: () => boolean) => {
    for (const end = Date.now() + 60_000; !is(); await sleep(50))
      if (Date.now() > end || java.exitCode !== null) throw new Error(said.slice(-3_000))
  }
  await until(() => said.includes('listening'))

  const transport = transportTo(`rocketmq://${login}@127.0.0.1:${port}`)
  t.teardown(() => transport.close())
  const ours = {
    'webhook-id': 'msg_1',
    'ackbox-task-no': 'order.paid:1',
    'ackbox-message-code': 'order.paid',
    'ackbox-callback-url': 'http://127.0.0.1:1/callback',
    'ackbox-callback-token': 'v1.token'
  }
  for (let n = 1; n <= 2; n++) {
    const outcome = await transport.send({ topic: 'orders', body: '{"orderId":"1"}' }, parcel({ ours }))
    t.match(outcome, { kind: 'delivered' })
    await until(() => receipts.length >= n)
  }
  const receipt = {
    token: 'v1.token',
    body: { taskNo: 'order.paid:1', messageCode: 'order.paid', result: 'HANDLED' }
  }
  t.strictSame(receipts, [receipt, receipt])
  t.equal(said.split('handled msg_1 {"orderId":"1"}').length, 2, 'handled once')
  t.match(said, /again msg_1/)
})
