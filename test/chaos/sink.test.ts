import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import type { Testimony } from '../../chaos/sink.ts'
import { secretVariable, senderVariable } from '../../chaos/terms.ts'
import { until } from '../support/until.ts'

const chaos = join(import.meta.dirname, '../../chaos')

const requests = 30

/** Writes `requests` requests to the sink, each on its own connection, and then runs until it is killed. */
const sender = `
  import { connect } from 'node:net'
  import { stamp } from '${join(chaos, 'stamp.js')}'
  const headers = { host: 'sink', 'ackbox-task-no': 'a', 'ackbox-attempt': '1', 'content-length': '2', ...stamp() }
  const lines = Object.entries(headers).map(([name, value]) => name + ': ' + value)
  const text = ['POST /plain HTTP/1.1', ...lines, '', '{}'].join('\\r\\n')
  const send = () => new Promise(done => connect(Number(process.argv[1]), '127.0.0.1').write(text, done))
  await Promise.all(Array.from({ length: ${requests} }, send))
  process.stdout.write('sent')
  setInterval(() => {}, 60_000)`

async function startSink(t: Test) {
  const sink = fork(join(chaos, 'sink.js'), {
    env: { ...process.env, CHAOS_SEED: '1', [secretVariable]: 'whsec_c2VjcmV0' },
    serialization: 'advanced'
  })
  t.teardown(() => sink.kill('SIGKILL'))
  const [{ port }] = (await once(sink, 'message')) as [{ port: number }]
  const tell = async (order: object): Promise<unknown> => {
    sink.send({ id: 1, ...order })
    const [{ reply }] = (await once(sink, 'message')) as [{ reply: unknown }]
    return reply
  }
  const testimony = async () => (await tell({ kind: 'testimony' })) as Testimony
  return { sink, port, tell, testimony }
}

t.test('a message to the alarm channel is kept with the status that it was answered with', async t => {
  const { port, tell, testimony } = await startSink(t)
  const send = async (body: string): Promise<void> => {
    await (await fetch(`http://127.0.0.1:${port}/alarm`, { method: 'POST', body })).arrayBuffer()
  }
  await tell({ kind: 'mode', mode: 'fail' })
  await send('first')
  await tell({ kind: 'mode', mode: 'well' })
  await send('second')
  t.match((await testimony()).alarms, [
    { status: 503, body: 'first' },
    { status: 204, body: 'second' }
  ])
})

t.test('a request that the sink accepts after the death of its sender still says whose it was', async t => {
  const { sink, port, testimony } = await startSink(t)
  sink.kill('SIGSTOP')
  const child = spawn(process.execPath, ['--input-type=module', '-e', sender, `${port}`], {
    env: { ...process.env, [senderVariable]: 'worker-1#7' }
  })
  await once(child.stdout, 'data')
  child.kill('SIGKILL')
  await once(child, 'exit')
  const deadAt = Date.now()
  sink.kill('SIGCONT')
  await until('the sink has read all', async () => (await testimony()).arrivals.length === requests)
  const { arrivals } = await testimony()
  for (const arrival of arrivals) {
    t.match(arrival, { sender: 'worker-1#7', taskNo: 'a', attempt: 1 })
    t.ok(arrival.builtAt < deadAt && arrival.at >= deadAt, 'it was sent before, and read after')
    t.ok(arrival.cameAfter < deadAt, 'and the sink does not say that it came late')
  }
})
