import type { Socket } from 'node:net'
import { setTimeout as sleep } from 'node:timers/promises'
import hessian from 'hessian.js'
import t from 'tap'
import { frameOf, type Frame } from '../../src/transport/dubbo/classic-frame.ts'
import type { Dubbo2Request } from '../../src/transport/dubbo/hessian.ts'
import { conformance, type DownstreamUnderTest, type Mood, type Seen } from './conformance.ts'
import { provider } from './dubbo2-provider.ts'

/** A little longer than the rest after a failed connect. */
const restMs = 550

function hessianOf(...values: unknown[]): Buffer {
  const encoder = new hessian.EncoderV2()
  for (const value of values) encoder.write(value)
  return encoder.get()
}

/** A call with one argument, as a provider reads it. */
function seenIn(body: Buffer): Seen {
  const decoder = new hessian.DecoderV2(body)
  for (let i = 0; i < 7; i++) decoder.read()
  const [arg] = decoder.read() as [string | Buffer]
  return { body: Buffer.from(arg), headers: decoder.read() as Record<string, string> }
}

conformance<Dubbo2Request>(t, async (t): Promise<DownstreamUnderTest<Dubbo2Request>> => {
  let now: Mood = 'take'
  let hung = (): void => {}
  let hanging = new Promise<void>(resolve => (hung = resolve))
  const seen: Seen[] = []

  const answers: Record<Exclude<Mood, 'hang'>, (body: Buffer) => Buffer> = {
    take: () => hessianOf(2),
    echo: body => hessianOf(1, JSON.parse(body.toString())),
    fail: () =>
      hessianOf(0, { $class: 'GenericException', $: { exceptionClass: 'a.B', exceptionMessage: 'no' } }),
    refuse: () => hessianOf(1, { never: true }),
    'too large': () => hessianOf(1, 'x'.repeat(1_000_000))
  }
  const behave = (socket: Socket, { id, body, isEvent }: Frame): void => {
    if (isEvent) return
    const call = seenIn(body)
    seen.push(call)
    if (now === 'hang') hung()
    else socket.write(frameOf(0, 20, id, answers[now](call.body)))
  }
  const { transport, stop, start } = await provider(t, behave)
  return {
    transport,
    accepted: ({ json }) => ((json as { never?: boolean } | null)?.never ? 'refused' : true),
    seen,
    request: ({ body, headers = {} }) => ({
      service: 'com.acme.Points',
      method: 'onPaid',
      types: [typeof body === 'string' ? 'java.lang.String' : '[B'],
      args: [body],
      attachments: headers
    }),
    signed: body => JSON.stringify([body]),
    mood: mood => {
      now = mood
      hanging = new Promise(resolve => (hung = resolve))
    },
    stop: async () => stop(),
    start: async () => {
      await start()
      await sleep(restMs)
    },
    hanging: () => hanging,
    // One connection carries all calls, so it stays when one of them is given up.
    letGo: async () => {}
  }
})
