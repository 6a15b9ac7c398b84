import t from 'tap'
import { readResponse } from '../../src/transport/dubbo/hessian.ts'
import { flags, frameOf, frames, type Frame } from '../../src/transport/dubbo/classic-frame.ts'
import type { Dubbo2Request } from '../../src/transport/dubbo/hessian.ts'
import { provider, transportTo } from './dubbo2-provider.ts'
import { only } from '../support/only.ts'

/** hessian2: the byte for "a value follows", then a short text. */
const value = (text: string): Buffer => Buffer.concat([Buffer.from([0x91, text.length]), Buffer.from(text)])
const answer = (id: bigint, text: string): Buffer => frameOf(0, 20, id, value(text))

t.test('frames come out as they went in, split at any byte', t => {
  const bytes = Buffer.concat([
    frameOf(flags.request | flags.twoWay | flags.event, 0, 7n, Buffer.from('N')),
    answer(2n ** 63n, 'hello'),
    frameOf(0, 70, 0n, Buffer.alloc(0))
  ])
  for (let at = 0; at <= bytes.length; at++) {
    const seen: Frame[] = []
    const parser = frames(1_000, frame => seen.push(frame))
    parser.push(bytes.subarray(0, at))
    parser.push(bytes.subarray(at))
    t.match(
      seen,
      only(
        { isRequest: true, isTwoWay: true, isEvent: true, id: 7n, body: Buffer.from('N') },
        { isRequest: false, isEvent: false, status: 20, id: 2n ** 63n, body: value('hello') },
        { status: 70, id: 0n, body: Buffer.alloc(0) }
      )
    )
  }
  const seen: Frame[] = []
  const parser = frames(1_000, frame => seen.push(frame))
  for (const byte of bytes) parser.push(Buffer.from([byte]))
  t.equal(seen.length, 3)
  t.end()
})

t.test('what is no frame, or too large a one, is said by its first bytes', t => {
  t.throws(() => frames(10, () => {}).push(Buffer.from('H')), /not Dubbo/)
  t.throws(() => frames(10, () => {}).push(Buffer.from([0xda, 0x00])), /not Dubbo/)
  t.throws(
    () => frames(10, () => {}).push(frameOf(0, 20, 1n, Buffer.alloc(11)).subarray(0, 16)),
    /answer_too_long/
  )
  t.throws(() => readResponse(20, Buffer.from([0x91, 0x43])))
  t.same(readResponse(20, value('hi')), { kind: 'value', value: 'hi', whole: true })
  t.same(readResponse(20, Buffer.from([0x92])), { kind: 'value', value: null, whole: true })
  t.end()
})

/** hessian2: a text of up to 1,023 letters. */
const hessianText = (text: string): Buffer =>
  Buffer.concat([Buffer.from([0x30 + (text.length >> 8), text.length & 0xff]), Buffer.from(text)])
const generic = (message: string): string =>
  `a.RpcException: ${message}\na.RpcException: ${message}\n\tat a.filter.GenericFilter.invoke(GenericFilter.java:1)`

const text = (outcome: { answer?: Uint8Array }): string => Buffer.from(outcome.answer ?? []).toString()

t.test('answers find their calls by id, in any order, and one connection carries them', async t => {
  const held: bigint[] = []
  const { send, sockets, received } = await provider(t, (socket, { id }) => {
    held.push(id)
    if (held.length < 100) return
    for (const each of held.toReversed()) socket.write(answer(each, `n${each}`))
  })
  const outcomes = await Promise.all(Array.from({ length: 100 }, () => send()))
  t.same(
    outcomes.map(text),
    received.map(({ id }) => `"n${id}"`)
  )
  t.equal(sockets.size, 1)
})

t.test('an answer of another id, or twice, completes nothing', async t => {
  const { send } = await provider(t, (socket, { id }) => {
    socket.write(answer(id + 1_000n, 'not yours'))
    socket.write(answer(id, 'yours'))
    socket.write(answer(id, 'again'))
  })
  t.equal(text(await send()), '"yours"')
  t.equal(text(await send()), '"yours"')
})

t.test('an answer after the deadline is nobody’s', async t => {
  let first: bigint | undefined
  const { send } = await provider(t, (socket, { id }) => {
    if (first === undefined) first = id
    else {
      socket.write(answer(first, 'late'))
      socket.write(answer(id, 'mine'))
    }
  })
  t.match(await send({}, { timeoutMs: 100 }), { kind: 'failed', reason: 'timeout' })
  t.equal(text(await send()), '"mine"')
})

t.test('garbage ends the connection and its calls; the next call has a new one', async t => {
  let first: unknown
  const { send } = await provider(t, (socket, { id }) => {
    first ??= socket
    socket.write(socket === first ? 'HTTP/1.1 400 Bad Request\r\n\r\n' : answer(id, 'good'))
  })
  const both = await Promise.all([send(), send()])
  for (const outcome of both) t.match(outcome, { kind: 'failed', reason: /^protocol|^connection_closed/ })
  t.match(await send(), { kind: 'delivered' })
})

t.test(
  'its heartbeat is answered; a provider that says it will stop gets no new calls on that connection',
  async t => {
    const used = new Set<unknown>()
    const { send, received } = await provider(t, (socket, frame) => {
      if (!frame.isRequest) return
      used.add(socket)
      socket.write(frameOf(flags.request | flags.twoWay | flags.event, 0, 77n, Buffer.from('N')))
      socket.write(frameOf(flags.request | flags.event, 0, 78n, Buffer.from('\x01R')))
      setTimeout(() => socket.write(answer(frame.id, 'done')), 100)
    })
    t.match(await send(), { kind: 'delivered' }, 'what is on its way ends')
    t.match(
      received.find(frame => !frame.isRequest),
      { isEvent: true, id: 77n, status: 20 }
    )
    t.match(await send(), { kind: 'delivered' })
    t.equal(used.size, 2, 'on another connection')
  }
)

t.test('statuses of a provider, and what a handler must not ask for', async t => {
  const said = (status: number, message: string) =>
    provider(t, (socket, { id }) => {
      socket.write(frameOf(0, status, id, hessianText(message)))
    })
  const cases: [number, string, object][] = [
    [40, 'no', { kind: 'failed', reason: /^target_missing/ }],
    [70, generic('No such method x'), { kind: 'failed', reason: /^target_missing/ }],
    [70, generic('com.acme.Gone'), { kind: 'failed', reason: /^target_missing/ }],
    [70, generic('java.lang.NumberFormatException: x'), { kind: 'refused', reason: /^bad_arguments/ }],
    [70, generic('java.lang.ClassCastException: x'), { kind: 'refused', reason: /^bad_arguments/ }],
    [70, generic('GenericFilter#invoke args.length'), { kind: 'refused', reason: /^bad_arguments/ }],
    // A temporary answer of a filter, or an error that an operator can fix, is not final.
    [70, generic('java.lang.IllegalArgumentException: not in allow list'), { kind: 'failed' }],
    [70, generic('x: NumberFormatException'), { kind: 'failed' }],
    [70, 'com.acme.ConverterException\n\tat a.Busy.convert()', { kind: 'failed' }],
    [70, 'RpcException: NumberFormatException: x\n\tat a.Mine()', { kind: 'failed' }],
    [70, 'hunter2', { kind: 'failed', reason: 'provider: service error' }],
    [25, 'Data too large', { kind: 'refused', reason: /^too_large/ }],
    [100, 'busy', { kind: 'failed', reason: 'provider_busy' }]
  ]
  for (const [status, message, outcome] of cases) {
    const { send } = await said(status, message)
    t.match(await send(), outcome)
  }
  t.match(await (await provider(t, (s, { id }) => s.write(frameOf(0, 40, id, Buffer.from('C'))))).send(), {
    reason: /^target_missing/
  })
  const { send, received } = await said(20, '')
  const bad: Partial<Dubbo2Request>[] = [
    { service: 'a b' },
    { method: '' },
    { types: ['long'] },
    { args: {} as never },
    { attachments: { 'ackbox-attempt': '2' } },
    { broker: 'other' }
  ]
  for (const more of bad) t.match(await send(more), { kind: 'failed', reason: /^bad_request/ })
  t.equal(received.length, 0)
  const denied = await provider(t, () => {}, [])
  t.match(await denied.send(), { kind: 'failed', alarm: 'BLOCKED_TARGET' })
  t.equal(denied.sockets.size, 0)
})

t.test('after a provider has announced its stop, the calls go to the next host', async t => {
  const readOnly = frameOf(flags.request | flags.event, 0, 1n, Buffer.from('\u0001R'))
  const leaving = await provider(t, (socket, { id }) =>
    socket.write(Buffer.concat([readOnly, answer(id, 'first')]))
  )
  const staying = await provider(t, (socket, { id }) => socket.write(answer(id, 'second')))
  const { send } = transportTo(t, [leaving.port, staying.port])
  const answers: string[] = []
  for (let i = 0; i < 3; i++) answers.push(text(await send()))
  t.same(answers, ['"first"', '"second"', '"second"'])
})
