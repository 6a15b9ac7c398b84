import fc from 'fast-check'
import t from 'tap'
import { workedMs } from '../support/stopwatch.ts'
import { bad, good, naughty, uncarried } from './corpus.ts'
import {
  contentHash,
  defaultTaskNo,
  JsonProblem,
  readBatch,
  readJson,
  type JsonShape
} from '../../src/json/reader.ts'

function bytesOf(text: string | number[]): Buffer {
  return Buffer.from(text as string)
}

function read(text: string | number[], shape: JsonShape = 'task') {
  return readJson(bytesOf(text), shape)
}

function problemOf(text: string | number[], shape: JsonShape = 'task'): JsonProblem {
  try {
    read(text, shape)
  } catch (error) {
    if (error instanceof JsonProblem) return error
    throw error
  }
  throw new Error(`was read: ${String(text).slice(0, 80)}`)
}

const posted = (body: string) => `{"taskNo":"t-1","messageBody":${body},"messageCode":"order.paid"}`
const nested = (depth: number) => '['.repeat(depth) + ']'.repeat(depth)
const membered = (count: number) => `{${Array.from({ length: count }, (_, i) => `"k${i}":0`).join()}}`

t.test('JSON of every kind is read as JSON.parse reads it, alone and as a body', async t => {
  for (const [story, text] of good) {
    t.same(read(text, 'plain').value, JSON.parse(text), story)
    t.equal(read(posted(text)).bodyText(), text.trim(), `${story}, as a body`)
  }
})

t.test('what is no JSON is refused, alone and as a body', async t => {
  for (const [story, text] of bad) {
    t.ok(problemOf(text, 'plain'), story)
    t.ok(problemOf([...Buffer.from('{"messageBody":'), ...bytesOf(text), 0x7d]), `${story}, as a body`)
    if (typeof text === 'string') t.throws(() => JSON.parse(text), `${story}: JSON.parse agrees`)
  }
})

t.test('JSON that would lose something on its way is refused, alone and as a body', async t => {
  for (const [story, text] of uncarried) {
    t.equal(problemOf(text, 'plain').code, 'NOT_I_JSON', story)
    t.equal(problemOf(posted(text)).code, 'NOT_I_JSON', `${story}, as a body`)
    t.doesNotThrow(() => JSON.parse(text))
  }
})

t.test('a problem says what kind it is, where, and at which byte', async t => {
  const cases: [text: string | number[], code: string, pointer: string, offset: number][] = [
    ['{"a":[1,2,x]}', 'NOT_JSON', '/a/2', 10],
    ['{"a":1', 'NOT_JSON', '/a', 6],
    ['{"é":{"b":01}}', 'NOT_JSON', '/é/b', 11],
    ['{"a/b":{"~":["\\ud800"]}}', 'NOT_I_JSON', '/a~1b/~0/0', 14],
    ['{"a":1,"b":[{"c":0,"\\u0063":0}]}', 'NOT_I_JSON', '/b/0/c', 19],
    ['{"deliverStartTime":1e400}', 'NOT_I_JSON', '/deliverStartTime', 20],
    [posted(nested(65)), 'TOO_DEEP', `/messageBody${'/0'.repeat(53)}`, 94],
    [[0x22, 0xef, 0xbf, 0xbd, 0xff, 0x22], 'NOT_UTF8', '', 4],
    [[0xef, 0xbb, 0xbf, 0x7b, 0x7d], 'NOT_I_JSON', '', 0],
    ['', 'NOT_JSON', '', 0]
  ]
  for (const [text, code, pointer, offset] of cases) {
    t.match(problemOf(text), { code, pointer, offset }, String(text).slice(0, 40))
  }
})

t.test('a body 64 levels deep passes and 65 are refused, wherever the body is', async t => {
  t.equal(read(posted(nested(64))).bodyText(), nested(64))
  t.equal(read(`{"tasks":[${posted(nested(64))}]}`, 'batch').bodyText(), nested(64))
  t.equal(problemOf(posted(nested(65))).code, 'TOO_DEEP')
  t.equal(problemOf(`{"tasks":[${posted(nested(65))}]}`, 'batch').code, 'TOO_DEEP')
  t.equal(problemOf(`{"extend":${nested(64)}}`).code, 'TOO_DEEP', 'the envelope counts itself')
  t.equal(problemOf(`{"messageBody":[[]],"extend":${nested(64)}}`).code, 'TOO_DEEP', 'after a body, too')
})

t.test(
  '5,000 nested arrays and 100,000 nested objects are refused at once, not by a stack that overflows',
  async t => {
    t.equal(problemOf(posted(nested(5_000))).code, 'TOO_DEEP')
    t.equal(problemOf(posted('{"a":'.repeat(100_000) + '0' + '}'.repeat(100_000))).code, 'TOO_DEEP')
    t.equal(problemOf('[{"":'.repeat(100_000), 'plain').code, 'TOO_DEEP')
  }
)

t.test('20,000 members pass and 20,001 are refused, counted in each body alone', async t => {
  const most = membered(20_000)
  t.equal(read(posted(most)).bodyText(), most)
  t.equal(problemOf(posted(membered(20_001))).code, 'TOO_MANY_MEMBERS')
  t.equal(problemOf(posted(`[${membered(10_000)},${membered(10_001)}]`)).code, 'TOO_MANY_MEMBERS')
  t.equal(read(`{"tasks":[${posted(most)},${posted(most)}]}`, 'batch').bodyText(1), most)
  t.equal(read(posted(`[${'0,'.repeat(100_000)}0]`)).bodyBytes(), 200_003, 'elements are not members')
})

t.test('what lies around a body is bounded too, around each one in a batch', async t => {
  t.equal(problemOf(`{"extend":${membered(1_000)}}`).code, 'TOO_MANY_MEMBERS')
  t.equal(problemOf(`{"extend":[${'0,'.repeat(1_000)}0]}`).code, 'TOO_MANY_MEMBERS')
  t.equal(problemOf(`{"tasks":[${'0,'.repeat(10_000)}0]}`, 'batch').code, 'TOO_MANY_MEMBERS')
  const one = `{"extend":${membered(900)},"messageBody":${membered(2_000)},"a":0}`
  t.equal(read(`{"tasks":[${one},${one},${one}]}`, 'batch').bodyText(2), membered(2_000))
})

t.test('numbers in a body are carried as written, in the envelope they must survive a double', async t => {
  const risky = [
    '9007199254740993',
    '1e400',
    '-1e400',
    '1e-400',
    '0.1000000000000000055511151231257827',
    '123456789012345678',
    '9'.repeat(400)
  ]
  const safe = [
    '-0',
    '1.0',
    '1.50e3',
    '0.1',
    '1e21',
    '123456789012345680',
    '5e-324',
    '9007199254740992',
    `1${'0'.repeat(300)}`,
    `0.${'0'.repeat(5_000)}`,
    '0e99999999999',
    '1E2',
    '1.7976931348623157e308'
  ]
  for (const number of [...risky, ...safe]) {
    t.equal(read(posted(number)).bodyText(), number)
    t.equal(read(posted(`[{"n":${number}}]`)).bodyText(), `[{"n":${number}}]`)
    t.equal(read(`{"data":${number}}`, 'receipt').bodyText(), number)
  }
  for (const number of risky) {
    t.match(
      problemOf(`{"retryTimes":${number}}`),
      { code: 'NOT_I_JSON', pointer: '/retryTimes' },
      number.slice(0, 40)
    )
    t.equal(
      problemOf(`{"messageBody":1,"x":{"messageBody":${number}}}`).code,
      'NOT_I_JSON',
      'only the root has a body'
    )
    t.equal(
      problemOf(`{"messageBody":${number}}`, 'receipt').code,
      'NOT_I_JSON',
      'a receipt has data, no body'
    )
    t.equal(problemOf(number, 'plain').code, 'NOT_I_JSON')
  }
  for (const number of safe) t.ok(read(`{"retryTimes":${number}}`), number.slice(0, 40))
})

t.test('a number made of a million zeros does not hold up the others', async t => {
  const ms = workedMs(() => read(`{"a":0.${'0'.repeat(130_000)}1${'0'.repeat(130_000)}e130001}`))
  t.ok(ms < 500, `${ms} ms`)
})

t.test('strings that broke other programs come through untouched, as values and as names', async t => {
  for (const [i, string] of naughty.entries()) {
    const text = JSON.stringify({ [string]: [string] })
    const task = read(posted(text))
    t.equal(task.bodyText(), text)
    t.same(task.value, JSON.parse(posted(text)), `string ${i}`)
  }
})

t.test('long strings, escapes and emoji keep their text', async t => {
  for (const body of [
    `"${'\\u0041'.repeat(43_500)}"`,
    `{"${'k'.repeat(200_000)}":1}`,
    `"${'\u{1f468}\u200d\u{1f469}\u200d\u{1f467}'.repeat(10_000)}"`,
    '"\u2028\u2029</script><img onerror=x>"',
    '{"toJSON":"x","then":{},"a":" {[,]}:\\" "}'
  ])
    t.equal(read(posted(body)).bodyText(), body)
})

t.test('the body is found by its name however that is written, and only where it belongs', async t => {
  t.equal(read('{"messageBod\\u0079": 1 }').bodyText(), '1')
  t.equal(read('{"\\u006d\\u0065ssageBody":{}}').bodyText(), '{}')
  t.equal(read('{"messageBodx":1,"MessageBody":2,"messageBody ":3,"xxxxxxxxxxxxxx":4}').bodyText(), undefined)
  t.equal(read('{"extend":{"messageBody":1}}').bodyText(), undefined)
  t.equal(read('[{"messageBody":1}]').bodyText(), undefined)
  t.equal(read('{"messageBody":null}').bodyText(), 'null')
  t.equal(read('{"data":7}').bodyText(), undefined)
  t.equal(read('{"data":7}', 'receipt').bodyText(), '7')
  t.equal(read('{"messageBody":7}', 'plain').bodyText(), undefined)
  t.equal(problemOf('{"messageBody":1,"messageBod\\u0079":2}').code, 'NOT_I_JSON')
  t.match(read('{"messageBody":"é"}'), { text: '{"messageBody":"é"}' })
  t.equal(read('{"messageBody":"é"}').bodyBytes(), 4)
  t.equal(read('{}').bodyBytes(), 0)
})

t.test('each task of a batch has its own body, whatever stands between them', async t => {
  const batch = read(
    '{"a":[1],"t\\u0061sks":[{"messageBody":1.0},null,{"x":[{"messageBody":3}]},[],{"messageBody": "ü" }],"z":1}',
    'batch'
  )
  t.same(
    [0, 1, 2, 3, 4, 5].map(i => batch.bodyText(i)),
    ['1.0', undefined, undefined, undefined, '"ü"', undefined]
  )
  t.equal(batch.bodyBytes(4), 4)
  t.equal(read('{"tasks":{"messageBody":1}}', 'batch').bodyText(), undefined)
  t.equal(read('{"tasks":[]}', 'batch').bodyText(), undefined)
  t.equal(read('{"messageBody":1}', 'batch').bodyText(), undefined)
  t.equal(problemOf('{"tasks":[{"a":1}],"tasks":[]}', 'batch').code, 'NOT_I_JSON')
})

t.test('a large batch is read as a small one is, but in turns', async t => {
  let turns = 0
  const turn = async () => void turns++
  const fill = `"${'x'.repeat(3_000)}"`
  for (const body of ['{"n":1.0,"__proto__":[{}]}', '"ü"', '[[]]', 'null']) {
    const all = Array.from({ length: 300 }, (_, i) =>
      i % 7 === 0 ? '{}' : `{"fill":${fill},"messageBody":${body},"n":${i}}`
    )
    const text = ` {"a":{"b":1},"tasks" : [ ${all.join(' ,\n')} ] ,"z":{"y":[1]}} `
    const batch = await readBatch(Buffer.from(text), turn)
    t.same(batch.value, JSON.parse(text))
    t.same(
      all.map((_, i) => batch.bodyText(i)),
      all.map((_, i) => (i % 7 === 0 ? undefined : body))
    )
  }
  t.ok(turns >= 8, `${turns} turns`)
  t.same((await readBatch(Buffer.from('{"tasks":[{"messageBody":1.0}]}'), turn)).bodyText(), '1.0')
  t.same((await readBatch(Buffer.from(`{"a":"${'x'.repeat(300_000)}"}`), turn)).bodyText(), undefined)
  const tooLarge = await readBatch(
    Buffer.from(`{"tasks":[{"messageBody":[${'[],'.repeat(100_000)}0],"n":1}]}`),
    turn
  )
  t.same(tooLarge.value, { tasks: [{ messageBody: true, n: 1 }] })
  t.equal(tooLarge.bodyBytes(), 300_003)
})

t.test('a large batch whose tasks are no list is read as what it is, and not as an empty list', async t => {
  const turn = async () => {}
  const spaces = ' '.repeat(300_000)
  for (const tasks of ['{}', '{"a":[1]}', '"text"', '1', 'null', 'true']) {
    const text = `{"a":1,"tasks":${tasks},"z":2}`
    t.same((await readBatch(Buffer.from(text + spaces), turn)).value, JSON.parse(text), tasks)
  }
  const twice = `{"tasks":{"a":1,"a":2}}${spaces}`
  await t.rejects(readBatch(Buffer.from(twice), turn), { code: 'NOT_I_JSON', pointer: '/tasks/a' })
})

t.test('a name said twice anywhere in a large batch is found there', async t => {
  const turn = async () => {}
  const one = `{"fill":"${'x'.repeat(300_000)}"}`
  for (const [text, pointer] of [
    [`{"tasks":[${one},{"a":{"b":1,"c":2,"b":3}}]}`, '/tasks/1/a/b'],
    [`{"tasks":[${one}],"tasks":[]}`, '/tasks'],
    [`{"tasks":[${one}],"z":{"y":1,"y":2}}`, '/z/y'],
    [`{"z":{"y":1,"y":2},"tasks":[${one}]}`, '/z/y'],
    [`{"z":1,"tasks":[${one}],"z":1}`, '/z']
  ] as const)
    await t.rejects(readBatch(Buffer.from(text), turn), { code: 'NOT_I_JSON', pointer })
  await t.rejects(readBatch(Buffer.from(`{"tasks":[${one},x]}`), turn), { code: 'NOT_JSON' })
})

t.test('bytes that are a view into a larger buffer are read within their bounds', async t => {
  const large = new TextEncoder().encode(`xx${posted('[1]')}yy`)
  t.equal(readJson(large.subarray(2, large.length - 2), 'task').bodyText(), '[1]')
})

t.test('names that reach for prototypes are data: nothing is polluted, nothing is lost', async t => {
  for (const body of [
    '{"__proto__":{"polluted":1}}',
    '{"constructor":{"prototype":{"polluted":1}}}',
    '{"__proto__":[]}'
  ]) {
    const task = read(posted(body))
    t.equal(task.bodyText(), body)
    t.equal(JSON.stringify((task.value as { messageBody: unknown }).messageBody), body)
    contentHash(task.value as Record<string, unknown>, body)
    contentHash({ extend: JSON.parse(body) }, body)
  }
  t.equal('polluted' in {}, false)
  t.equal(read('{"__proto__":{"messageBody":1}}').bodyText(), undefined)
})

t.test('an error never carries more than 200 escaped characters of the input', async t => {
  const long = 'x'.repeat(200_000)
  for (const text of [
    `{"${long}":x}`,
    `{"a":{"${long}":{"b":x}}}`,
    `["${long}`,
    long,
    `{"${'\\u2028'.repeat(100)}":x}`,
    `{"\u202e\u0007":x}`,
    `{"\u202e":x}`,
    `{"${'订'.repeat(100)}":x}`,
    `{"a":"\\u0000${long}"}`,
    `{"n":${'9'.repeat(1_000)}}`,
    `{"\\"\\"${'\\\\'.repeat(70)}":x}`,
    '{"<script>":x}',
    `${'{"abcdefgh":'.repeat(70)}`,
    '[\u202e]',
    '\u0000'
  ]) {
    const { detail, pointer, message } = problemOf(text)
    const shown = JSON.stringify([detail, pointer, message]).replaceAll(/[^ -~]/g, '\\u0000')
    t.ok(shown.length < 450, `${shown.length} characters`)
    t.ok(JSON.stringify(pointer).replaceAll(/[^ -~]/g, '\\u0000').length <= 122)
    t.ok(/^[ -~]*$/.test(detail), detail)
    t.notMatch(pointer, /[\p{C}\p{Zl}\p{Zp}]/u)
  }
  t.equal(problemOf(`{"a":{"${long}":{"b":x}}}`).pointer, '/a', 'the pointer ends where it would get long')
})

/** Random JSON texts with white space, escapes, odd numbers and any name. */
const space = fc.string({ unit: fc.constantFrom(' ', '\t', '\n', '\r'), maxLength: 2 })
const character = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .string({ unit: 'binary', minLength: 1, maxLength: 3 })
      .map(s => JSON.stringify(s.replaceAll('\0', '')).slice(1, -1))
  },
  fc.integer({ min: 1, max: 0xd7ff }).map(code => `\\u${code.toString(16).padStart(4, '0')}`),
  fc.constantFrom('\\/', '\\"', '\\\\', '\\n', '\\ud83d\\uDE00', '\u2028')
)
const string = fc.array(character, { maxLength: 6 }).map(parts => `"${parts.join('')}"`)
const number = fc.oneof(
  fc.double({ noNaN: true, noDefaultInfinity: true }).map(String),
  fc.stringMatching(/^-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,4})?$/)
)
const { value: anyJson } = fc.letrec<{ value: string }>(tie => ({
  value: fc.oneof(
    { maxDepth: 4, depthSize: 'small' },
    fc.constantFrom('true', 'false', 'null', '[]', '{}', '[ ]', '{ }'),
    number,
    string,
    fc
      .array(fc.tuple(space, tie('value'), space), { maxLength: 4 })
      .map(all => `[${all.map(one => one.join('')).join()}]`),
    fc
      .uniqueArray(fc.tuple(string, space, space, tie('value'), space), {
        maxLength: 4,
        selector: ([name]) => JSON.parse(name)
      })
      .map(all => `{${all.map(([name, a, b, value, c]) => `${a}${name}${b}:${b}${value}${c}`).join()}}`)
  )
}))

t.test(
  'the text of a body is always the very slice that was posted, and its value what JSON.parse says',
  async t => {
    fc.assert(
      fc.property(anyJson, space, space, fc.boolean(), (body, before, after, ascii) => {
        const text = `{"taskNo":"${ascii ? 't' : 'ü'}",${before}"messageBody"${after}:${before}${body}${after},"x":1}`
        const task = read(text)
        t.equal(task.bodyText(), body)
        t.equal(task.bodyBytes(), Buffer.byteLength(body))
        t.same(task.value, JSON.parse(text))
      }),
      { numRuns: 2_000 }
    )
    fc.assert(
      fc.property(fc.array(fc.option(anyJson), { maxLength: 6 }), space, (bodies, between) => {
        const all = bodies.map(body =>
          body === null ? '{"taskNo":"t"}' : `{"taskNo":"t","messageBody":${between}${body}${between}}`
        )
        const batch = read(`{"tasks":[${all.join(`${between},`)}]}`, 'batch')
        t.same(
          bodies.map((_, i) => batch.bodyText(i) ?? null),
          bodies
        )
      }),
      { numRuns: 300 }
    )
  }
)

t.test('a text that somebody damaged is refused, or is JSON still and read alike', async t => {
  let refused = 0
  const bytes = fc.oneof(
    fc.integer({ min: 0, max: 255 }),
    fc.constantFrom(...Buffer.from('"\\{}[],:0123456789eE+-.u tfn'))
  )
  fc.assert(
    fc.property(
      anyJson,
      fc.nat(),
      bytes,
      fc.constantFrom('set', 'insert', 'cut'),
      (body, where, byte, how) => {
        const whole = Buffer.from(posted(body))
        const at = where % whole.length
        const damaged = Buffer.concat([
          whole.subarray(0, at),
          how === 'cut' ? Buffer.alloc(0) : Buffer.from([byte]),
          whole.subarray(how === 'insert' ? at : at + 1)
        ])
        let parsed: unknown
        try {
          parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(damaged))
        } catch {
          refused++
          t.throws(() => readJson(damaged, 'task'), JsonProblem)
          return
        }
        try {
          t.same(readJson(damaged, 'task').value, parsed)
        } catch (error) {
          // Duplicate names, lone surrogates and numbers beyond a double are JSON, but not I-JSON.
          t.match(error, { code: 'NOT_I_JSON' })
        }
      }
    ),
    { numRuns: 3_000 }
  )
  t.ok(refused > 500, `${refused} of the damaged texts were no JSON`)
})

t.test('a name said twice is found wherever it is, and distinct names never look like one', async t => {
  fc.assert(
    fc.property(anyJson, fc.nat(), string, anyJson, (body, depth, name, value) => {
      const object = `{${name}:${value},"-":1,${name}:${value}}`
      const wrapped = Array.from({ length: depth % 20 }).reduce<string>(
        inner => `[${body},{"x":${inner}}]`,
        object
      )
      t.match(problemOf(posted(wrapped)), { code: 'NOT_I_JSON' })
    }),
    { numRuns: 300 }
  )
})

t.test('a task without a number gets the classic one, and a hash of it where that is too long', async t => {
  t.equal(defaultTaskNo('order.paid', 'vip', '{}'), 'order.paid:vip:99914b932bd37a50b983c5e7c90ae93b')
  const longest = 'c'.repeat(64)
  t.equal(defaultTaskNo(longest, 's'.repeat(30), '1').length, 128)
  t.match(defaultTaskNo(longest, 's'.repeat(31), '1'), /^[0-9a-f]{64}$/)
  t.not(defaultTaskNo(longest, longest, '1'), defaultTaskNo(longest, longest, '1.0'))
})

t.test(
  'the same content posted in another order or spacing is the same; one other character is not',
  async t => {
    const hashOf = (text: string) => {
      const task = read(text)
      return contentHash(task.value as Record<string, unknown>, task.bodyText() ?? '')
    }
    const first = hashOf(
      '{"messageCode":"a","messageBody":{"x":1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1},"delay":10}'
    )
    for (const same of [
      '{ "delay": 10.0, "extend": {"__proto__":1,"p":[1,{"r":null,"q":2}]}, "messageBody" : {"x":1} , "messageCode":"\\u0061" }',
      '{"taskNo":"t-9","messageCode":"a","messageBody":{"x":1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1},"delay":1e1}'
    ])
      t.equal(hashOf(same), first)
    for (const other of [
      '{"messageCode":"a","messageBody":{"x": 1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1},"delay":10}',
      '{"messageCode":"a","messageBody":{"x":1.0},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1},"delay":10}',
      '{"messageCode":"b","messageBody":{"x":1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1},"delay":10}',
      '{"messageCode":"a","messageBody":{"x":1},"extend":{"p":[{"q":2,"r":null},1],"__proto__":1},"delay":10}',
      '{"messageCode":"a","messageBody":{"x":1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":2},"delay":10}',
      '{"messageCode":"a","messageBody":{"x":1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1}}',
      '{"messageCode":"a","messageBody":{"x":1},"extend":{"p":[1,{"q":2,"r":null}],"__proto__":1},"delay":"10"}'
    ])
      t.not(hashOf(other), first)
    t.equal(contentHash({ a: 1, b: undefined }, ''), contentHash({ a: 1 }, ''), 'a member that is not there')
    t.match(first, /^[\w-]{43}$/)
  }
)

t.test('the first wrong byte of a long text is told, wherever it lies', async t => {
  for (const unit of ['x', '\u00e9', '\u20ac', '\u{1f600}']) {
    const bytes = Buffer.from(`"${unit.repeat(9_000)}`)
    for (const start of [1, 4_080, 8_180]) {
      for (let at = start; at < start + 24; at++) {
        const broken = Buffer.from(bytes)
        broken[at] = 0xff
        const repaired = Buffer.from(broken.toString())
        const offset = broken.findIndex((byte, i) => byte !== repaired[i])
        t.match(problemOf([...broken]), { code: 'NOT_UTF8', offset }, `${unit.length} ${at}`)
      }
    }
  }
})
