// If a downstream may have handled a task and its answer was lost, Ackbox probes it before it sends the task again.
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { gzipSync } from 'node:zlib'
import t, { type Test } from 'tap'
import { Webhook } from 'standardwebhooks'
import { signingSecret } from '../../src/domain/tokens.ts'
import { mayHaveArrived } from '../../src/delivery/probe.ts'
import type { LoadedProbe } from '../../src/handler/loaded.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { httpTransport } from '../../src/transport/http/http.ts'
import { only } from '../support/only.ts'
import { setup, type SetupOptions } from '../support/setup.ts'

/** The reaction of the receiver to a delivery. It handles the task if it answers, hangs or breaks the connection. */
type Does = 'answers' | 'hangs' | 'breaks' | 'refuses' | 'ignores and breaks'

interface Shop {
  url: string
  handled: string[]
  deliveries: number
  probes: { method: string; headers: IncomingHttpHeaders; body: string }[]
  does: Does[]
  /** Its answers to probes are compressed, behind a 100. */
  zips?: true
  /** The status of the answer to a probe. By default 200, with the truth about `handled`. */
  says: ((taskNo: string) => number | 'hangs') | undefined
}

/** A real receiver with a memory: `/orders` takes a task, `/handled/…` reports whether it was handled. */
async function shop(t: Test): Promise<Shop> {
  const it: Shop = { url: '', handled: [], deliveries: 0, probes: [], does: [], says: undefined }
  const server = createServer((request, response) => {
    let body = ''
    request.on('data', chunk => (body += String(chunk)))
    request.on('end', () => {
      const taskNo = String(request.headers['ackbox-task-no'])
      if (request.url?.startsWith('/handled/')) {
        it.probes.push({ method: request.method ?? '', headers: request.headers, body })
        const status = it.says?.(taskNo) ?? 200
        if (status === 'hangs') return
        const answer = JSON.stringify({ handled: it.handled.includes(taskNo) })
        if (it.zips) response.writeContinue()
        if (it.zips) response.writeHead(status, { 'content-encoding': 'gzip' }).end(gzipSync(answer))
        else response.writeHead(status).end(answer)
        return
      }
      it.deliveries++
      const does = it.does.shift() ?? 'answers'
      if (does === 'answers' || does === 'hangs' || does === 'breaks') it.handled.push(taskNo)
      if (does === 'answers') response.end('{}')
      if (does === 'refuses') response.writeHead(503).end()
      if (does.endsWith('breaks')) request.socket.destroy()
    })
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => {
    server.closeAllConnections()
    server.close()
  })
  it.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return it
}

async function story(t: Test, probe: Partial<LoadedProbe> = {}, more: SetupOptions['downstream'] = {}) {
  const receiver = await shop(t)
  const transport = httpTransport({ guard: guard({ allow: undefined, embedded: true, deny: [] }) })
  t.teardown(() => transport.close())
  const it = await setup(t, {
    transport,
    downstream: {
      request: ({ raw }) => ({ url: `${receiver.url}/orders`, body: raw }),
      probe: {
        request: ({ task }) => ({ url: `${receiver.url}/handled/${task.taskNo}` }),
        handled: ({ status, json }) => status === 200 && json?.['handled'],
        required: false,
        ...probe
      },
      ...more
    }
  })
  /** Makes the next attempt of the waiting deliveries. */
  const again = async () => {
    await it.later('1 hour')
    await it.dispatch()
  }
  return { ...it, receiver, again }
}

t.test('handled, and the connection broke before the answer: it is asked, and not sent again', async t => {
  const { post, quiet, again, delivery, receiver, sql, counts } = await story(t)
  receiver.does = ['breaks']
  const taskNo = await post()
  await quiet()
  t.match(await delivery(taskNo), {
    status: 'SENDING',
    attempts: only({ outcome: 'failed', reason: 'connection_closed' })
  })
  t.equal(receiver.probes.length, 0, 'the first attempt asks nobody')
  await again()
  const ended = await delivery(taskNo)
  t.match(ended, {
    status: 'HANDLED',
    handledBy: 'probe',
    attempt: 2,
    attempts: only({ outcome: 'failed' }, { outcome: 'probed', status: 200, answer: '{"handled":true}' })
  })
  t.notOk('deliveredAt' in ended, 'nobody saw it delivered')
  t.equal(receiver.deliveries, 1)
  t.equal((await sql`select from alarm where resolved_at is null`).length, 0)
  t.match(
    (await counts()).find(one => one.downstream === 'warehouse'),
    { attempts: 2, failedAttempts: 1, handled: 1, direct: 0 },
    'the downstream is not failing: it has handled it'
  )

  const [probe] = receiver.probes
  t.match(probe, { method: 'GET', body: '', headers: { 'ackbox-probe': '1', 'ackbox-attempt': '2' } })
  t.notOk(probe?.headers['ackbox-callback-token'])
  const [task] = await sql<{ id: string }[]>`select id from task where task_no = ${taskNo}`
  t.equal(probe?.headers['webhook-id'], `probe_${task?.id}_warehouse_2`)
  const webhook = new Webhook(signingSecret('a test secret', 'warehouse'))
  t.doesNotThrow(() => webhook.verify('', probe?.headers as Record<string, string>, { jsonParse: false }))
})

t.test('the answer to a probe counts in each form that HTTP allows', async t => {
  const { post, quiet, again, delivery, receiver } = await story(t)
  receiver.does = ['breaks']
  receiver.zips = true
  const taskNo = await post()
  await quiet()
  await again()
  const attempts = only({}, { outcome: 'probed', answer: '{"handled":true}' })
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'probe', attempts })
  t.equal(receiver.deliveries, 1)
})

t.test('it did not handle it: sent again, at once and in the same attempt', async t => {
  const { post, quiet, again, delivery, receiver } = await story(t)
  receiver.does = ['ignores and breaks']
  const taskNo = await post()
  await quiet()
  await again()
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'send', attempt: 2 })
  t.match(receiver, { deliveries: 2, probes: { length: 1 } })
})

t.test('a timeout, a missing receipt and a lost lease may have arrived, too', async t => {
  await t.test('timeout', async t => {
    const { post, quiet, again, delivery, receiver } = await story(
      t,
      {},
      { limit: { concurrency: 5, timeoutMs: 1_000 } }
    )
    receiver.does = ['hangs']
    const taskNo = await post()
    await quiet()
    await again()
    t.match(await delivery(taskNo), {
      handledBy: 'probe',
      attempts: only({ reason: 'timeout' }, { outcome: 'probed' })
    })
    t.equal(receiver.deliveries, 1)
  })
  await t.test('no receipt in time', async t => {
    const { post, quiet, again, later, dispatch, delivery, receiver } = await story(
      t,
      {},
      { needCallback: true }
    )
    const taskNo = await post()
    await quiet()
    t.match(await delivery(taskNo), { phase: 'AWAITING_RECEIPT' })
    await later('2 minutes')
    await dispatch()
    await again()
    t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'probe', attempt: 2 })
    t.equal(receiver.deliveries, 1)
  })
  await t.test('lost lease', async t => {
    const { post, quiet, again, delivery, receiver, sql } = await story(t)
    receiver.does = ['breaks']
    const taskNo = await post()
    await quiet()
    // As if the process had died before it wrote the outcome of the attempt.
    await sql`delete from attempt`
    await sql`update delivery set phase = 'IN_FLIGHT', next_action_at = now() - interval '1 s', tries_left = tries_left`
    await again()
    await again()
    t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'probe' })
    t.equal(receiver.deliveries, 1)
  })
})

t.test('a clear refusal has not arrived: nobody is asked', async t => {
  const { post, quiet, again, delivery, receiver } = await story(t)
  receiver.does = ['refuses', 'refuses']
  const taskNo = await post()
  await quiet()
  await again()
  await again()
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'send', attempt: 3 })
  t.match(receiver, { deliveries: 3, probes: { length: 0 } })
})

t.test(
  'no answer: sent, and the attempt says so; where one is required, it backs off and asks again',
  async t => {
    for (const answer of [500, 401, 302, 'hangs'] as const) {
      const says = () => answer
      const { post, quiet, again, delivery, receiver } = await story(
        t,
        {},
        { limit: { concurrency: 5, timeoutMs: 2_000 } }
      )
      receiver.does = ['breaks']
      receiver.says = says
      const taskNo = await post()
      await quiet()
      await again()
      t.match(await delivery(taskNo), {
        handledBy: 'send',
        attempt: 2,
        attempts: only({}, { outcome: 'delivered', warning: /^probe: / })
      })
      t.equal(receiver.deliveries, 2, String(answer))
    }
    const { post, quiet, again, delivery, receiver } = await story(t, { required: true })
    receiver.does = ['breaks']
    receiver.says = () => 503
    const taskNo = await post()
    await quiet()
    await again()
    await again()
    t.match(await delivery(taskNo), {
      status: 'SENDING',
      attempt: 3,
      attempts: only(
        {},
        { outcome: 'failed', reason: 'probe: http_503' },
        { outcome: 'failed', reason: 'probe: http_503' }
      )
    })
    receiver.says = undefined
    await again()
    t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'probe', attempt: 4 })
    t.match(receiver, { deliveries: 1, probes: { length: 3 } })
  }
)

t.test('404 is an answer: it knows no such task', async t => {
  const { post, quiet, again, delivery, receiver } = await story(t, { required: true })
  receiver.does = ['ignores and breaks']
  receiver.says = () => 404
  const taskNo = await post()
  await quiet()
  await again()
  t.match(await delivery(taskNo), { handledBy: 'send', attempt: 2 })
  t.equal(receiver.deliveries, 2)
})

t.test('what a hook throws, or answers later, is no answer; only true is', async t => {
  const wrong: [Partial<LoadedProbe>, RegExp][] = [
    [
      {
        request: () => {
          throw new Error('oh')
        }
      },
      /^probe: hook: oh/
    ],
    [
      {
        handled: () => {
          throw new Error('no')
        }
      },
      /^probe: accepted_threw/
    ],
    [{ handled: async () => true }, /^probe: accepted_threw.*async/],
    [{ request: () => ({ url: 'http://169.254.169.254/' }) }, /^probe: blocked_target/]
  ]
  for (const [probe, warning] of wrong) {
    const { post, quiet, again, delivery, receiver } = await story(t, probe)
    receiver.does = ['breaks']
    const taskNo = await post()
    await quiet()
    await again()
    t.match(await delivery(taskNo), { handledBy: 'send', attempts: only({}, { warning }) })
  }
  const { post, quiet, again, delivery, receiver } = await story(t, { handled: () => 'true' })
  receiver.does = ['breaks']
  const taskNo = await post()
  await quiet()
  await again()
  t.match(await delivery(taskNo), { handledBy: 'send' })
})

t.test('a redelivery of what FAILED asks; one by force, of what is HANDLED, does not', async t => {
  const { post, quiet, again, delivery, receiver, redeliver } = await story(t)
  receiver.does = ['breaks']
  const taskNo = await post({ retryTimes: 1 })
  await quiet()
  t.match(await delivery(taskNo), { status: 'FAILED', reason: 'SEND_EXHAUSTED' })
  await redeliver(taskNo)
  await again()
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'probe', attempt: 2 })
  await redeliver(taskNo, { force: true })
  await again()
  t.match(await delivery(taskNo), { status: 'HANDLED', handledBy: 'send', attempt: 3 })
  t.match(receiver, { deliveries: 2, probes: { length: 1 } })
})

t.test('which attempts may have arrived', async t => {
  const cases: [
    outcome: 'delivered' | 'failed' | 'refused' | 'probed',
    reason: string | null,
    status: number | null,
    may: boolean
  ][] = [
    ['delivered', null, 200, true],
    ['failed', 'timeout', null, true],
    ['failed', 'timeout', 200, true],
    ['failed', 'connection_closed', null, true],
    ['failed', 'shutdown', null, true],
    ['failed', 'http_504', 504, true],
    ['failed', 'timeout: the provider reported a timeout', 408, true],
    ['failed', 'http_503', 503, false],
    ['failed', 'http_404', 404, false],
    ['failed', 'not_accepted', 200, false],
    ['failed', 'exception: closed', 500, false],
    ['failed', 'exception: closed', 20, false],
    ['failed', 'connection_refused', null, false],
    ['failed', 'connect_timeout', null, false],
    ['failed', 'dns: ENOTFOUND', null, false],
    ['failed', 'blocked_target: private', null, false],
    ['failed', 'hook: oh', null, false],
    ['failed', 'probe: timeout', null, false],
    ['refused', 'http_410', 410, false]
  ]
  for (const [outcome, reason, status_code, may] of cases)
    t.equal(mayHaveArrived({ outcome, reason, status_code }), may, `${outcome} ${reason} ${status_code}`)
})

t.test(
  'probes count in the rate of a downstream: with the sends after them, they are not twice as many',
  async t => {
    const perSecond = 4
    const { post, quiet, again, receiver, delivery } = await story(
      t,
      {},
      { limit: { concurrency: 9, timeoutMs: 20_000, perSecond } }
    )
    receiver.does = Array.from({ length: 4 }, () => 'ignores and breaks')
    const taskNos = await Promise.all(Array.from({ length: 4 }, () => post()))
    await quiet()
    t.equal(receiver.deliveries, 4)
    const began = performance.now()
    await again()
    for (const taskNo of taskNos) t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
    t.match(receiver, { deliveries: 8, probes: { length: 4 } })
    // Eight requests: the first may go at once, the others wait for a token each. Without those of the probes it is half the time.
    t.ok(performance.now() - began >= (6 * 1_000) / perSecond)
  }
)

t.test(
  'a rate that leaves no room for a send in the time after its probe keeps no delivery from being sent',
  async t => {
    const { post, quiet, again, receiver, delivery } = await story(
      t,
      {},
      { limit: { concurrency: 9, timeoutMs: 800, perSecond: 1 } }
    )
    receiver.does = ['ignores and breaks']
    const taskNo = await post()
    await quiet()
    t.match(await delivery(taskNo), { phase: 'WAITING', attempt: 1 })
    await again()
    t.match(await delivery(taskNo), { status: 'HANDLED', attempt: 2 })
    t.match(receiver, { deliveries: 2, probes: { length: 1 } })
  }
)
