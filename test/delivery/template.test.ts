// The other features of a handler: `afterSend`, a custom send, `extend`.
import t from 'tap'
import type { AboutOutcome } from '../../src/handler/define.ts'
import type { LoadedDownstream } from '../../src/handler/loaded.ts'
import { checkHandler } from '../../src/handler/validate.ts'
import { customTransport } from '../../src/transport/custom.ts'
import { z } from '../../src/handler/define.ts'
import { only } from '../support/only.ts'
import { failed } from '../support/scripted.ts'
import { setup } from '../support/setup.ts'
import { taskRequest } from '../support/task-request.ts'
import { until } from '../support/until.ts'
import { sendContext } from '../transport/send-context.ts'

t.test('afterSend is told how every attempt ended, after it is written, and changes nothing', async t => {
  const told: AboutOutcome<unknown>[] = []
  const { post, quiet, later, dispatch, delivery, downstream, logged } = await setup(t, {
    downstream: {
      afterSend(about) {
        told.push(about)
        Object.assign(about.outcome, { kind: 'delivered' })
        throw new Error('oh')
      }
    }
  })
  downstream.next(failed, { kind: 'delivered', status: 202, messageId: 'orders/0/7' })
  const taskNo = await post({ messageBody: '{"n":1}' })
  await quiet()
  t.match(await delivery(taskNo), {
    status: 'SENDING',
    phase: 'WAITING',
    attempts: only({ outcome: 'failed' })
  })
  t.match(told, [
    { task: { taskNo }, body: { n: 1 }, attempt: 1, outcome: { reason: 'http_503', status: 503 } }
  ])
  await later('1 hour')
  await dispatch()
  t.match(await delivery(taskNo), {
    status: 'HANDLED',
    attempts: only({ outcome: 'failed' }, { outcome: 'delivered', messageId: 'orders/0/7' })
  })
  t.match(told[1], { attempt: 2, outcome: { kind: 'delivered', status: 202, messageId: 'orders/0/7' } })
  t.equal(told.length, 2)
  t.equal(logged('hook.after_send_failed').length, 2)
})

t.test('an afterSend that hangs holds up no delivery', async t => {
  const { post, delivery, downstream } = await setup(t, {
    downstream: { limit: { concurrency: 1, timeoutMs: 10_000 }, afterSend: () => new Promise(() => {}) }
  })
  const taskNos = [await post(), await post(), await post()]
  await downstream.received(3)
  for (const taskNo of taskNos)
    await until('it is written', async () => (await delivery(taskNo)).status === 'HANDLED')
})

t.test('hooks of one downstream that hang hold back no other, and their number is bounded', async t => {
  const hooks: (() => void)[] = []
  const afterSend = () => new Promise<void>(resolve => hooks.push(resolve))
  const { accept, post, delivery, deliver, quiet, queue, logged } = await setup(t, {
    downstreams: { warehouse: { afterSend, limit: { concurrency: 1, timeoutMs: 10_000 } }, points: {} },
    mostPending: 3
  })
  await accept.many([taskRequest(), taskRequest(), taskRequest()])
  await until('three hooks hang', () => hooks.length === 3)
  const fourth = await post()
  await until('the other one is sent', async () => (await delivery(fourth, 'points')).status === 'HANDLED')
  t.equal((await delivery(fourth)).phase, 'IN_FLIGHT')
  t.same(logged('hook.after_send_failed'), [], 'no hook had to run into its limit before')
  hooks[0]?.()
  await until('its own is sent', async () => (await delivery(fourth)).status === 'HANDLED')
  await queue.idle()
  let isIdle = false
  const idle = deliver.idle().then(() => (isIdle = true))
  await until('its hook hangs too', () => hooks.length === 4)
  t.notOk(isIdle, 'a process that stops waits for hooks')
  for (const end of hooks) end()
  await idle
  await quiet()
})

/** The only downstream of a handler, after the handler was loaded. */
function loaded(downstream: object): LoadedDownstream {
  const handler = checkHandler(
    { messageCode: 'order.paid', body: z.unknown(), downstreams: { warehouse: downstream } },
    'a.ts',
    ['http', 'custom']
  )
  if (Array.isArray(handler)) throw new Error(JSON.stringify(handler))
  return handler.downstreams[0] as LoadedDownstream
}

t.test('a custom downstream sends by itself, under the same deadline and the same retries', async t => {
  const sent: { raw: string; attempt: number; id: string | undefined; token: string | undefined }[] = []
  const answers: (() => unknown)[] = [
    () => ({ kind: 'failed', reason: 'away', retryAfterMs: 60_000 }),
    () => undefined,
    () => {
      throw new Error('oh')
    },
    () => ({ kind: 'delivered', messageId: 'm-7', answer: 'thanks', status: 7 })
  ]
  const custom = loaded({
    transport: 'custom',
    needCallback: true,
    async send(
      { raw, attempt }: { raw: string; attempt: number },
      { headers }: { headers: (payload: string) => Record<string, string> }
    ) {
      const ours = headers(raw)
      sent.push({ raw, attempt, id: ours['webhook-id'], token: ours['ackbox-callback-token'] })
      return answers.shift()?.()
    }
  })
  const { post, quiet, later, dispatch, delivery, receive } = await setup(t, {
    transport: customTransport(),
    downstream: custom
  })
  const taskNo = await post({ messageBody: '{"n":1}', retryTimes: 10 })
  await quiet()
  for (let i = 0; i < 3; i++) {
    await later('1 hour')
    await dispatch()
  }
  t.match(await delivery(taskNo), {
    status: 'SENDING',
    phase: 'AWAITING_RECEIPT',
    attempts: only(
      { outcome: 'failed', reason: 'away' },
      { outcome: 'failed', reason: 'bad_outcome: send returned undefined' },
      { outcome: 'failed', reason: 'send: oh' },
      { outcome: 'delivered', messageId: 'm-7', answer: 'thanks', status: 7 }
    )
  })
  t.match(sent, only(...[1, 2, 3, 4].map(attempt => ({ raw: '{"n":1}', attempt }))))
  t.equal(new Set(sent.map(one => one.id)).size, 1)
  t.match(await receive({ taskNo, token: sent.at(-1)?.token }), { status: 'HANDLED' })
})

t.test('a custom send that hangs ends at its deadline, and hears so', async t => {
  let aborted = false
  const transport = customTransport()
  const hanging = (_: unknown, { signal }: { signal: AbortSignal }) =>
    new Promise(() => signal.addEventListener('abort', () => (aborted = true)))
  const downstream = loaded({ transport: 'custom', send: hanging })
  const request = (await downstream.request({} as never)) as never
  t.match(await transport.send(request, sendContext({ timeoutMs: 50 })), {
    kind: 'failed',
    reason: 'timeout'
  })
  t.ok(aborted)
  const nonsense: [unknown, object][] = [
    [
      { kind: 'delivered', handled: true },
      { kind: 'delivered', handled: true }
    ],
    [
      { kind: 'refused', reason: 'never' },
      { kind: 'refused', reason: 'never' }
    ],
    [{ kind: 'failed' }, { kind: 'failed', reason: 'without a reason' }],
    [{ kind: 'sent' }, { kind: 'failed', reason: /^bad_outcome/ }],
    [
      { kind: 'delivered', status: 1.5, answer: 7, messageId: {} },
      { kind: 'delivered', status: undefined }
    ],
    [true, { kind: 'failed', reason: /^bad_outcome/ }]
  ]
  for (const [made, outcome] of nonsense)
    t.match(await transport.send({ send: () => made }, sendContext()), outcome, JSON.stringify(made))
})

t.test('wrong handlers are told so', async t => {
  const wrongs = (downstream: object) =>
    JSON.stringify(
      checkHandler({ messageCode: 'a', body: z.unknown(), downstreams: { warehouse: downstream } }, 'a.ts', [
        'http',
        'custom',
        'kafka'
      ])
    )
  const request = () => ({})
  t.match(wrongs({ transport: 'custom' }), 'send is missing')
  t.match(wrongs({ transport: 'custom', send: request, request }), 'custom sends by itself')
  t.match(wrongs({ transport: 'http', send: request, request }), 'works only with the transport custom')
  t.match(wrongs({ transport: 'kafka', request, probe: { request, handled: request } }), 'has no answer')
  t.match(wrongs({ transport: 'http', request, probe: { request } }), 'needs two functions')
  t.match(
    wrongs({ transport: 'http', request, probe: { request, handled: request, require: true } }),
    'did you mean'
  )
  t.match(wrongs({ transport: 'http', request, afterSend: 7 }), 'afterSend is 7')
})

t.test('onReceipt may set the extend of the task', async t => {
  let returned: unknown
  const { post, quiet, receive, read, logged } = await setup(t, {
    downstream: { needCallback: true },
    handler: { onReceipt: () => returned as 'HANDLED' }
  })
  const cases: [returned: unknown, extend: unknown, status: string][] = [
    [{ extend: { invoice: 7 } }, { invoice: 7 }, 'HANDLED'],
    [{ result: 'FAILED', extend: { why: '缺货' } }, { why: '缺货' }, 'FAILED'],
    [{ result: 'RETRY' }, { from: 'the producer' }, 'SENDING'],
    ['HANDLED', { from: 'the producer' }, 'HANDLED'],
    [{ extend: 'text' }, { from: 'the producer' }, 'SENDING'],
    [{ extend: { long: 'x'.repeat(1_024) } }, { from: 'the producer' }, 'SENDING'],
    [{ extend: { path: 'C:\\udata\\u0000' } }, { path: 'C:\\udata\\u0000' }, 'HANDLED'],
    [{ extend: { nul: '\0' } }, { from: 'the producer' }, 'SENDING'],
    [{ extend: { half: '\ud800' } }, { from: 'the producer' }, 'SENDING'],
    [{ extend: { half: '\\\ud800' } }, { from: 'the producer' }, 'SENDING'],
    [{ result: 'DONE' }, { from: 'the producer' }, 'SENDING']
  ]
  for (const [what, extend, status] of cases) {
    returned = what
    const taskNo = await post({ extend: '{"from":"the producer"}' })
    await quiet()
    t.match(await receive({ taskNo }), { kind: 'ok', status, applied: true }, JSON.stringify(what))
    const task = await read(taskNo)
    t.same([task.extend, task.status], [extend, status], JSON.stringify(what))
  }
  t.equal(logged('hook.on_receipt_failed').length, 6)
})

t.test(
  'a task that asks for receipts where no downstream takes them is refused, and not silently ignored',
  async t => {
    const without = await setup(t, { downstreams: { audit: { needCallback: undefined } as object } })
    const { taskRequest } = await import('../support/task-request.ts')
    t.match(await without.accept(taskRequest({ needCallback: true })), {
      kind: 'invalid',
      pointer: '/needCallback'
    })
    t.match(await without.accept(taskRequest({ needCallback: false })), { kind: 'created' })
    const mixed = await setup(t, {
      downstreams: { audit: { needCallback: undefined } as object, warehouse: { needCallback: false } }
    })
    const taskNo = await mixed.post({ needCallback: true })
    await mixed.quiet()
    t.match(await mixed.delivery(taskNo, 'audit'), { status: 'HANDLED' })
    t.match(await mixed.delivery(taskNo, 'warehouse'), { phase: 'AWAITING_RECEIPT' })
  }
)

t.test('a scene in Chinese goes through: headers hold it percent-encoded', async t => {
  const { post, quiet, read, downstream } = await setup(t, {})
  for (const sceneType of ['会员 日:双11/100%', '会'.repeat(255)]) {
    const taskNo = await post({ sceneType })
    await quiet()
    const header = downstream.requests.at(-1)?.headers['ackbox-scene-type'] ?? ''
    t.match(header, /^[\x21-\x7e]+$/)
    t.equal(decodeURIComponent(header), sceneType)
    t.match(await read(taskNo), { sceneType, status: 'HANDLED' })
  }
})
