// Receipts from a queue: their headers and their JSON, as each broker's client returns them.
import fc from 'fast-check'
import { functionReader } from '../functions.ts'
import { mutated, rubbish, text } from '../mutate.ts'
import type { ReceiptInput } from '../subjects/receipts.ts'
import { tokenHeader, tokens } from '../../src/domain/tokens.ts'

const token = tokens({ current: 'a secret of the fuzzer, long enough to be one' }).issue({
  taskNo: 't-1',
  downstream: 'warehouse',
  attempt: 1,
  at: new Date('2026-11-23T10:00:00Z')
})
const plain = '{"taskNo":"t-1","messageCode":"order.paid"}'
const whole =
  '{"taskNo":"t-1","messageCode":"order.paid","downstream":"warehouse","result":"RETRY","reason":"caf\u00e9","data":{"n":[1.0,null]}}'
const bodies = [plain, whole].map(one => text(Buffer.from(one)))

const from = fc.constantFrom<ReceiptInput['from']>('rabbitmq', 'kafka', 'nats', 'rocketmq')
const value = fc.oneof(
  fc.constant<unknown>(token),
  mutated(token),
  fc.constantFrom<unknown>('', 1, true, null, 1.5, { a: 1 }, ['x'], 'x'.repeat(70_000)),
  fc.string({ unit: 'binary' })
)
const header = fc.tuple(
  fc.oneof(
    { weight: 4, arbitrary: fc.constant(tokenHeader) },
    {
      weight: 2,
      arbitrary: fc.constantFrom('Ackbox-Callback-Token', '__proto__', 'constructor', '', 'content-type')
    },
    { weight: 1, arbitrary: rubbish(20) }
  ),
  value
)
const receipt = fc.record(
  {
    taskNo: fc.oneof(fc.constant<unknown>('t-1'), fc.jsonValue(), fc.string({ maxLength: 200 })),
    messageCode: fc.oneof(fc.constant<unknown>('order.paid'), fc.jsonValue()),
    result: fc.constantFrom<unknown>('HANDLED', 'RETRY', 'FAILED', 'PROCESSING', 'handled', null, 1, {}),
    reason: fc.oneof(fc.string({ unit: 'binary', maxLength: 1_100 }), fc.jsonValue()),
    data: fc.oneof(
      fc.jsonValue(),
      fc.nat(70_000).map(length => 'x'.repeat(length))
    )
  },
  { requiredKeys: ['taskNo', 'messageCode'] }
)
const body = fc.oneof(
  { weight: 3, arbitrary: mutated(...bodies) },
  { weight: 3, arbitrary: receipt.map(one => text(Buffer.from(JSON.stringify(one)))) },
  { weight: 2, arbitrary: fc.nat(999).map(n => `{"taskNo":"t-${n}","messageCode":"order.paid"}`) },
  { weight: 1, arbitrary: rubbish() }
)

const valid = (['rabbitmq', 'kafka', 'nats', 'rocketmq'] as const).flatMap(one =>
  bodies.map((body): ReceiptInput => ({
    from: one,
    headers: [[tokenHeader, token]],
    body,
    isSplit: false,
    isOurs: true
  }))
)

export const reader = functionReader<ReceiptInput>({
  name: 'receipts',
  module: new URL('../subjects/receipts.js', import.meta.url),
  valid,
  width: 200,
  inputs: fc.record({
    from,
    headers: fc.array(header, { maxLength: 4 }),
    body,
    isSplit: fc.boolean(),
    isOurs: fc.boolean()
  })
})
