// The answers of a classic Dubbo provider: its frames, and the Hessian values in them.
import hessian from 'hessian.js'
import { conversationReader } from '../conversation.ts'
import type { Script } from '../hostile-server.ts'
import { text } from '../mutate.ts'
import { judgeOutcomes, type TransportOptions } from '../subjects/transport.ts'

const options: TransportOptions = {
  name: 'dubbo2',
  url: 'dubbo://127.0.0.1:{port}',
  request: { broker: 'fuzzed', service: 'com.acme.Points', method: 'onPaid', types: ['long'], args: [1] }
}
function frame(flag: number, status: number, body: Buffer): string {
  const head = Buffer.alloc(16)
  head.writeUInt16BE(0xdabb)
  head[2] = flag
  head[3] = status
  head.writeUInt32BE(body.length, 12)
  return text(Buffer.concat([head, body]))
}
function written(...values: unknown[]): Buffer {
  const encoder = new hessian.EncoderV2()
  for (const value of values) encoder.write(value)
  return encoder.get()
}
const echo = [{ from: 4, to: 4, length: 8 }]
const answer = (status: number, ...values: unknown[]): Script => ({
  answers: [frame(2, status, written(...values))],
  echo,
  end: 'again'
})
const heartbeat = frame(0xe2, 0, Buffer.from('N'))
const thrown = {
  $class: 'java.lang.IllegalStateException',
  $: { detailMessage: 'closed', stackTrace: [{ declaringClass: 'a.B', methodName: 'c' }], cause: null }
}
const nested = { $class: 'com.acme.Order', $: { id: 7, lines: [{ a: 1.5 }, null, true], at: new Date(0) } }

const valid: Script[] = [
  answer(20, 1, 'fine'),
  answer(20, 4, nested, { dubbo: '3.3' }),
  answer(20, 2),
  answer(20, 0, thrown),
  answer(20, 1, Buffer.from('bytes'), 7),
  answer(70, 'a.RpcException: No such method\n\tat a.GenericFilter.invoke(A.java:1)'),
  {
    answers: [heartbeat + frame(2, 20, written(1, ['a', 'b']))],
    echo: [{ from: 4, to: 21, length: 8 }],
    end: 'again'
  },
  { answers: [frame(0xa2, 0, Buffer.from('\x01R'))], end: 'close' }
]

export const reader = conversationReader({
  name: 'dubbo2',
  module: new URL('../subjects/transport.js', import.meta.url),
  options,
  valid,
  floods: [heartbeat, frame(2, 20, written(1, 'fine')), 'HZ', '\x79', 'K\0\0\0\0', '\x60N'],
  judge: judgeOutcomes
})
