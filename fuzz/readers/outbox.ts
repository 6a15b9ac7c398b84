// The rows that producers enqueue by SQL: any text and any jsonb that PostgreSQL stores.
import fc from 'fast-check'
import { campaign } from '../campaign.ts'
import { mutated, rubbish } from '../mutate.ts'
import { servicePlayer } from '../service-player.ts'
import type { JsonInput, OutboxInput, TextColumn } from '../subjects/outbox.ts'

const plain: Record<TextColumn, string> = {
  task_no: 'order-1001',
  message_code: 'order.paid',
  scene_type: 'vip',
  message_body: '{"orderId":"A-1","cents":4200}',
  deliver_start_time: '2026-12-01T08:00:00.123456Z',
  delay: '1 hour',
  deliver_before: '2027-12-01 08:00:00+01',
  ordering_key: 'order-1001',
  need_callback: 'true',
  retry_times: '5',
  biz_type: 'order',
  biz_key: '1001',
  traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
}
const odd: Partial<Record<TextColumn, string[]>> = {
  message_code: ['no.such', '', 'audit.log'],
  deliver_start_time: ['infinity', '-infinity', '4713-01-01 BC', '294276-12-31', '0001-01-01', '10000-01-01'],
  deliver_before: ['infinity', '-infinity', '4713-01-01 BC', '294276-12-31', '0001-01-01'],
  delay: ['-1 day', '178000000 years', '1 month -31 days', '0.0000001 s', '9999999999 s', 'infinity'],
  retry_times: ['0', '-1', '2147483647', '-2147483648'],
  message_body: [
    '',
    ' ',
    'null',
    '1 2',
    '1,"members":2',
    '{"a":',
    '"\\u0000"',
    '1e400',
    `${'['.repeat(65)}${']'.repeat(65)}`
  ]
}
const long = fc
  .tuple(fc.constantFrom('x', '\u00e9', '"', ' ', '[', '{"a":'), fc.constantFrom(200, 5_000, 30_000))
  .map(([part, times]) => part.repeat(times))
const textOf = (name: TextColumn) =>
  fc.oneof(
    { weight: 6, arbitrary: fc.constant(plain[name]) },
    { weight: 3, arbitrary: fc.constantFrom(...(odd[name] ?? [''])) },
    { weight: 2, arbitrary: mutated(plain[name]) },
    { weight: 1, arbitrary: rubbish(300) },
    { weight: 1, arbitrary: long }
  )
const names = Object.keys(plain) as TextColumn[]
const texts = fc.record(Object.fromEntries(names.map(name => [name, textOf(name)])), { requiredKeys: [] })

const number = fc.constantFrom(
  '1',
  '1.0',
  '1e131000',
  '-1e131000',
  '1e-16000',
  `1.${'0'.repeat(1_000)}`,
  '0.1e400',
  '9007199254740993'
)
const json: fc.Arbitrary<JsonInput> = fc.oneof(
  { weight: 3, arbitrary: fc.json() },
  { weight: 2, arbitrary: fc.json().map(one => `{"extend":${one},"needCallback":true}`) },
  {
    weight: 3,
    arbitrary: fc.record({ element: number, times: fc.constantFrom(1, 20, 600, 5_000, 9_000) })
  },
  {
    weight: 1,
    arbitrary: fc.record({
      element: fc.constantFrom('"x"', '{}', '[]', 'null', '{"a":1e131000}', '"\\ud83d\\ude00"'),
      times: fc.constantFrom(5, 3_000, 30_000)
    })
  },
  { weight: 1, arbitrary: fc.constantFrom(70, 1_000, 6_000).map(n => '['.repeat(n) + ']'.repeat(n)) },
  { weight: 1, arbitrary: fc.constantFrom('1', '"a"', 'null', '{"after":["x"],"prepared":true}') }
)
const input: fc.Arbitrary<OutboxInput> = fc.record({
  texts,
  json: fc.record({ extend: json, members: json }, { requiredKeys: [] }),
  isKeyed: fc.boolean()
})

export const reader = campaign<OutboxInput>({
  name: 'outbox',
  open: () =>
    servicePlayer<OutboxInput>({
      module: new URL('../subjects/outbox.js', import.meta.url),
      secret: 'a secret of the fuzzer, long enough to be one',
      valid: [
        { texts: plain, json: {}, isKeyed: false },
        {
          texts: { ...plain, task_no: 'order-1002', delay: '1 s' },
          json: { extend: '{"by":"me"}' },
          isKeyed: true
        },
        { texts: {}, json: { extend: { element: '1e131000', times: 9_000 } }, isKeyed: false }
      ]
    }),
  inputs: input,
  width: 16,
  shrinks: 15
})
