import fc from 'fast-check'
import t from 'tap'
import { loggedError } from '../../src/runtime/logged-error.ts'
import { codeOf, isError, textOf } from '../../src/runtime/text-of.ts'
import { weirdNames, weirdValues } from '../support/weird-values.ts'

const isStorable = (text: string): boolean => !/[\0\p{Surrogate}]/u.test(text)

t.test('whatever was thrown has a text: it is short, and PostgreSQL can store it', async t => {
  for (const name of weirdNames) {
    const text = textOf(weirdValues[name]())
    t.ok(typeof text === 'string' && text !== '' && text.length <= 200 && isStorable(text), name)
    t.equal(typeof isError(weirdValues[name]()), 'boolean')
    t.doesNotThrow(() => codeOf(weirdValues[name]()))
  }
})

t.test('the log shows whatever was thrown, in a line of bounded length', async t => {
  for (const name of weirdNames) {
    const line = JSON.stringify(loggedError(weirdValues[name]()))
    t.ok(line.length < 40_000, `${name}: ${line.length}`)
  }
  t.match(loggedError(Object.assign(new Error('away', { cause: new Error('closed') }), { code: 'X1' })), {
    type: 'Error',
    message: 'away: closed',
    stack: /^Error: away[^]*caused by: Error: closed/,
    code: 'X1'
  })
})

t.test('a text says what the value says, where it says something', async t => {
  t.equal(textOf(new Error('no such field')), 'no such field')
  t.equal(textOf('plain'), 'plain')
  t.equal(
    textOf({ code: 1, toString: 1, in: ['a', { deep: true }] }),
    '{"code":1,"toString":1,"in":["a",{"deep":true}]}'
  )
  t.equal(textOf({ message: 'of another library' }), 'of another library')
  t.equal(textOf(new AggregateError([new Error('refused')])), 'refused')
  t.equal(textOf(new TypeError('')), 'TypeError')
  t.equal(textOf(Symbol('s')), 'Symbol(s)')
  t.equal(textOf(undefined), 'undefined')
  t.equal(textOf('a\0b \ud83d'), 'a\ufffdb \ufffd')
  t.equal(
    textOf('t\0o\0k\0e\0n\0'),
    'token\ufffd',
    'UTF-16 is shown as text, so that a secret in it is found'
  )
  t.equal(textOf('12345', 3), '123')
})

t.test('any value at all, of any depth, has a text of the length that was asked for', async () => {
  const anything = fc.anything({
    withBigInt: true,
    withDate: true,
    withMap: true,
    withNullPrototype: true,
    withObjectString: true,
    withSparseArray: true,
    withTypedArray: true,
    maxDepth: 4
  })
  fc.assert(
    fc.property(anything, fc.integer({ min: 0, max: 300 }), fc.boolean(), (value, most, isCause) => {
      const text = textOf(isCause ? new Error('', { cause: value }) : value, most)
      return text.length <= most && isStorable(text)
    }),
    { numRuns: 2_000 }
  )
})
