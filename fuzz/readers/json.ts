// Strict I-JSON: bodies of every route, receipts of every queue.
import fc from 'fast-check'
import { functionReader } from '../functions.ts'
import { mutated, text } from '../mutate.ts'
import type { JsonInput } from '../subjects/json.ts'
import type { JsonShape } from '../../src/json/reader.ts'

const shape = fc.constantFrom<JsonShape>('task', 'batch', 'receipt', 'plain')
const name = fc.oneof(
  fc.constantFrom(
    'messageBody',
    'data',
    'tasks',
    'taskNo',
    'a',
    '',
    '__proto__',
    'constructor',
    'message\\u0042ody',
    '1'
  ),
  fc.string({ unit: 'binary', maxLength: 8 }).map(one => JSON.stringify(one).slice(1, -1))
)
/** JSON as text, because a value cannot have these: repeated names, 1.0, escapes, white space. */
const { value } = fc.letrec<{ value: string }>(tie => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.constantFrom(
      'null',
      'true',
      '0',
      '-0',
      '1.0',
      '1e400',
      '9007199254740993',
      '0.1',
      '1E+2',
      '""',
      '{}',
      '[]',
      '01',
      '-',
      '"\\u0000"',
      '"\\ud800"',
      '"\\ud83d\\ude00"',
      '"\\/"'
    ),
    fc.string({ unit: 'binary', maxLength: 12 }).map(one => JSON.stringify(one)),
    fc.double().map(String),
    fc.array(tie('value'), { maxLength: 4 }).map(all => `[${all.join()}]`),
    fc
      .array(fc.tuple(name, tie('value')), { maxLength: 4 })
      .map(all => `{${all.map(([n, v]) => `"${n}" : ${v}`).join(' ,\n')}}`)
  )
}))
const inBytes = (json: string): string => text(Buffer.from(json))
const whole = fc.oneof(
  value,
  value.map(body => `{"taskNo":"t","messageBody":${body},"messageCode":"a"}`),
  value.map(body => `{"data": ${body} }`),
  fc
    .array(value, { maxLength: 4 })
    .map(all => `{"tasks":[${all.map(one => `{"messageBody":${one}}`).join()}]}`),
  fc.tuple(fc.nat(140), value).map(([depth, one]) => `${'['.repeat(depth)}${one}${']'.repeat(depth)}`)
)
const long = fc.record({
  shape,
  open: fc.constantFrom(
    '',
    '[',
    '{',
    '"',
    '{"messageBody":',
    '{"messageBody":[',
    '{"tasks":[',
    '{"data":{',
    '[1',
    '[0.',
    '-',
    '{"a":"'
  ),
  part: fc.oneof(
    fc.constantFrom(
      '[',
      '{"a":',
      '0',
      '9',
      ' ',
      '\\u0041',
      'x',
      '\\"',
      '"a":1,',
      '{},',
      '[],',
      '1.5e3,',
      '\xc3\xa9',
      '\xe2\x82',
      '"",'
    ),
    fc.string({ minLength: 1, maxLength: 12 }).map(inBytes)
  ),
  close: fc.constantFrom('', ']', '}', '"', '0]}', '"}', '0', 'x')
})

const valid: JsonInput[] = [
  { shape: 'task', text: '{"taskNo":"t-1","messageCode":"order.paid","messageBody":{"a":[1,2.50,"x"]}}' },
  { shape: 'batch', text: '{"tasks":[{"messageBody":1},{"messageBody":{"b":[]}}]}' },
  { shape: 'receipt', text: '{"taskNo":"t-1","messageCode":"order.paid","data":[{}]}' },
  { shape: 'plain', open: '[', part: '{},', close: '1]' },
  { shape: 'plain', text: '[1,"\\u00e9",{"a":null}]' }
]

export const reader = functionReader<JsonInput>({
  name: 'json',
  module: new URL('../subjects/json.js', import.meta.url),
  valid,
  inputs: fc.oneof(
    { weight: 20, arbitrary: fc.record({ shape, text: whole.map(inBytes), spaces: fc.nat(3) }) },
    {
      weight: 20,
      arbitrary: fc.record({ shape, text: whole.chain(one => mutated(inBytes(one))), spaces: fc.nat(3) })
    },
    { weight: 1, arbitrary: long }
  )
})
