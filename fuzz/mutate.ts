// Makes inputs from valid ones. All bytes are latin1 text, so that an input is JSON, and as readable as its protocol.
import fc from 'fast-check'

/** Lengths that a reader may believe, in the widths and orders of our protocols. */
const lengths = [0, 1, -1, -5, 127, 128, 255, 32_767, 65_535, 0x7f_ff_ff_ff, 0x80_00_00_00, 0xff_ff_ff_ff]
const decimals = [
  '0',
  '-1',
  '-5',
  '2147483647',
  '4294967295',
  '9007199254740993',
  '1e9',
  '99999999999999999999'
]

export const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1')
export const bytes = (latin1: string): Buffer => Buffer.from(latin1, 'latin1')

export const rubbish = (maxLength = 200): fc.Arbitrary<string> => fc.uint8Array({ maxLength }).map(text)

/** One change of a text: a place in it, and the edit there. */
interface Change {
  at: number
  edit:
    | { do: 'cut' | 'drop' | 'keepFrom' }
    | { do: 'flip'; bit: number }
    | { do: 'set'; byte: number }
    | { do: 'insert'; part: string }
    | { do: 'repeat'; length: number; times: number }
    | { do: 'length'; width: 1 | 2 | 4 | 8; value: number; little: boolean }
    | { do: 'decimal'; value: string }
}

const edit: fc.Arbitrary<Change['edit']> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('cut', 'drop', 'keepFrom') }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('flip'), bit: fc.nat(7) }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('set'), byte: fc.constantFrom(0, 1, 0x7f, 0x80, 0xfe, 0xff) })
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('insert'),
      part: fc.oneof(rubbish(20), fc.constantFrom('\r\n', '\r\n\r\n', '\0', '\0\0\0\0', '\xff\xff\xff\xff'))
    })
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('repeat'), length: fc.nat(64), times: fc.nat(200) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('length'),
      width: fc.constantFrom(1, 2, 4, 8),
      value: fc.oneof({ weight: 3, arbitrary: fc.constantFrom(...lengths) }, fc.integer()),
      little: fc.boolean()
    })
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('decimal'), value: fc.constantFrom(...decimals) }) }
)

function number(width: 1 | 2 | 4 | 8, value: number, little: boolean): string {
  const eight = Buffer.alloc(8)
  eight.writeBigInt64BE(BigInt(value))
  const bytes = eight.subarray(8 - width)
  return text(little ? bytes.toReversed() : bytes)
}

function changed(original: string, { at: place, edit }: Change): string {
  const at = original.length === 0 ? 0 : place % (original.length + 1)
  const before = original.slice(0, at)
  const after = original.slice(at)
  switch (edit.do) {
    case 'cut':
      return before
    case 'keepFrom':
      return after
    case 'drop':
      return before + after.slice(1)
    case 'flip':
      return (
        before +
        (after === '' ? '' : String.fromCharCode(after.charCodeAt(0) ^ (1 << edit.bit))) +
        after.slice(1)
      )
    case 'set':
      return before + String.fromCharCode(edit.byte) + after.slice(1)
    case 'insert':
      return before + edit.part + after
    case 'repeat':
      return before + after.slice(0, edit.length).repeat(edit.times + 1) + after.slice(edit.length)
    case 'length':
      return before + number(edit.width, edit.value, edit.little) + after.slice(edit.width)
    case 'decimal':
      // The next number in digits, because text protocols write their lengths so.
      return before + after.replace(/-?\d+/, edit.value)
  }
}

/** A valid text with one to three changes. Now and then an unchanged one, or random bytes. */
export function mutated(...valid: readonly string[]): fc.Arbitrary<string> {
  const change = fc.record({ at: fc.nat(1 << 20), edit })
  return fc.oneof(
    {
      weight: 12,
      arbitrary: fc
        .tuple(fc.constantFrom(...valid), fc.array(change, { minLength: 1, maxLength: 3 }))
        .map(([original, changes]) => changes.reduce(changed, original))
    },
    { weight: 1, arbitrary: fc.constantFrom(...valid) },
    { weight: 1, arbitrary: rubbish() }
  )
}

/** A list of texts: one is mutated, or some are missing, repeated, or in another order. */
export function mutatedList(valid: readonly string[]): fc.Arbitrary<string[]> {
  const index = fc.nat(Math.max(0, valid.length - 1))
  return fc.oneof(
    {
      weight: 8,
      arbitrary: index.chain(at =>
        mutated(valid[at] ?? '').map(one => valid.map((each, i) => (i === at ? one : each)))
      )
    },
    { weight: 1, arbitrary: fc.subarray([...valid]) },
    { weight: 1, arbitrary: fc.shuffledSubarray([...valid], { minLength: valid.length }) },
    { weight: 1, arbitrary: index.map(at => valid.flatMap((each, i) => (i === at ? [each, each] : [each]))) },
    { weight: 1, arbitrary: fc.array(rubbish(), { maxLength: 4 }) }
  )
}
