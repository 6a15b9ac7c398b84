// EGRESS: the targets that deliveries may reach, in every spelling of a URL or a resolver.
import fc from 'fast-check'
import { functionReader } from '../functions.ts'
import { mutated } from '../mutate.ts'
import type { TargetsInput } from '../subjects/targets.ts'

type Four = [number, number, number, number]
const byte = fc.nat(255)
/** On both sides of each edge of the special ranges, and anywhere. */
const edges: Four[] = [
  [0, 0, 0, 0],
  [9, 255, 255, 255],
  [10, 0, 0, 0],
  [11, 0, 0, 0],
  [100, 63, 255, 255],
  [100, 64, 0, 0],
  [100, 100, 100, 200],
  [100, 128, 0, 0],
  [126, 255, 255, 255],
  [127, 0, 0, 1],
  [128, 0, 0, 0],
  [168, 63, 129, 16],
  [169, 254, 169, 254],
  [169, 253, 255, 255],
  [172, 15, 255, 255],
  [172, 16, 0, 0],
  [172, 31, 255, 255],
  [172, 32, 0, 0],
  [192, 0, 0, 192],
  [192, 0, 1, 0],
  [192, 0, 2, 1],
  [192, 88, 99, 1],
  [192, 167, 255, 255],
  [192, 168, 1, 1],
  [192, 169, 0, 0],
  [198, 17, 255, 255],
  [198, 18, 0, 0],
  [198, 20, 0, 0],
  [198, 51, 100, 9],
  [203, 0, 113, 7],
  [223, 255, 255, 255],
  [224, 0, 0, 1],
  [239, 255, 255, 255],
  [240, 0, 0, 1],
  [255, 255, 255, 255],
  [8, 8, 8, 8]
]
const four: fc.Arbitrary<Four> = fc.oneof(fc.constantFrom(...edges), fc.tuple(byte, byte, byte, byte))

/** A number as the C library reads one. */
const digits = (value: number): fc.Arbitrary<string> =>
  fc.oneof(
    fc.constant(String(value)),
    fc.nat(3).map(zeros => `0${'0'.repeat(zeros)}${value.toString(8)}`),
    fc
      .boolean()
      .map(isUpper => (isUpper ? `0X${value.toString(16).toUpperCase()}` : `0x${value.toString(16)}`)),
    fc.nat(2).map(zeros => `0x${'0'.repeat(zeros)}${value.toString(16)}`)
  )
const dotted = (all: readonly number[]): string => all.join('.')
const groups = ([a, b, c, d]: Four): string => `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`

const spelledFour = four.chain(all => {
  const [a, b, c, d] = all
  const lists = [
    all,
    [a, b, c * 256 + d],
    [a, (b * 256 + c) * 256 + d],
    [((a * 256 + b) * 256 + c) * 256 + d]
  ]
  return fc.constantFrom(...lists).chain(list => fc.tuple(...list.map(digits)).map(parts => parts.join('.')))
})

/** IPv6, plain and with an IPv4 address inside, in all its spellings. */
const six = fc.oneof(
  fc.ipV6(),
  four.chain(all =>
    fc.constantFrom(
      `::ffff:${dotted(all)}`,
      `::ffff:${groups(all)}`,
      `::${dotted(all)}`,
      `::ffff:0:${groups(all)}`,
      `64:ff9b::${dotted(all)}`,
      `64:ff9b:1::${groups(all)}`,
      `2002:${groups(all)}::1`,
      `2001:0:1:2:3:4:${groups(all)}`,
      `2606:4700::5efe:${groups(all)}`,
      `2606:4700::200:5efe:${groups(all)}`,
      `fe80::5efe:${groups(all)}`,
      `0:0:0:0:0:FFFF:${groups(all)}`
    )
  ),
  fc
    .tuple(
      fc.constantFrom(
        '::',
        '::1',
        'fc00::',
        'fdff::',
        'fe80::',
        'febf::',
        'fec0::',
        'ff02::',
        '2001::',
        '2001:1ff::',
        '2001:200::',
        '2001:db8::',
        '2002::',
        '3fff::',
        '3fff:1000::',
        '4000::',
        '1fff::',
        '100::',
        '100:0:0:1::',
        'fd00:ec2::',
        'fd20:ce::',
        '64:ff9b:2::'
      ),
      fc.constantFrom('', '1', 'ffff', '254')
    )
    .map(([prefix, last]) => (prefix === '::1' || last === '' ? prefix : prefix + last))
)

const fullWidth = (text: string): string =>
  text.replaceAll(/[0-9a-z.]/g, one => String.fromCharCode(one.charCodeAt(0) + 0xfee0))
const escaped = (text: string): string =>
  text.replaceAll(/./g, one => `%${one.charCodeAt(0).toString(16).padStart(2, '0')}`)
const disguised = (host: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc
    .tuple(host, fc.nat(9))
    .map(([text, way]) =>
      way === 0 ? fullWidth(text) : way === 1 ? escaped(text) : way === 2 ? `${text}.` : text
    )

const host = fc.oneof(
  { weight: 4, arbitrary: disguised(spelledFour) },
  { weight: 3, arbitrary: six.map(one => `[${one}]`) },
  {
    weight: 1,
    arbitrary: disguised(
      fc.constantFrom(
        'localhost',
        'LOCALHOST',
        'shop.example',
        'a.localhost',
        'metadata.google.internal',
        'intranet',
        'x.svc',
        'router.home.arpa',
        'xn--9ca.example',
        '\u2460.example',
        'shop\u3002example',
        '1.2.3.4.5',
        '0x7f.example',
        '256.1.1.1'
      )
    )
  },
  {
    weight: 1,
    arbitrary: fc.webAuthority({
      withIPv4: true,
      withIPv4Extended: true,
      withIPv6: true,
      withPort: true,
      withUserInfo: true
    })
  },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) }
)
const url = fc
  .tuple(
    fc.constantFrom(
      'http://',
      'https://',
      'http:///',
      'HTTP://',
      'http:\\\\',
      'http:/',
      'ftp://',
      '//',
      'http://shop.example@',
      'http://u:p@',
      'http://shop.example#@',
      'http://shop.example\\@'
    ),
    host,
    fc.constantFrom('', '', '', ':80', ':8080', ':0', ':443', ':', ':22', ':99999'),
    fc.constantFrom('', '/', '/path', '?q', '#f', '/\\', '@shop.example/', '\t', '/%2e%2e/')
  )
  .map(parts => parts.join(''))

const address = fc.oneof(
  four.map(dotted),
  six,
  six.map(one => `${one}%1`)
)
const allowEntry = fc.oneof(
  fc.tuple(four.map(dotted), fc.nat(32)).map(([one, prefix]) => `${one}/${prefix}`),
  fc.tuple(six, fc.nat(128)).map(([one, prefix]) => `${one}/${prefix}`),
  four.map(dotted),
  four.map(all => `${dotted(all)}:443`)
)

export const reader = functionReader<TargetsInput>({
  name: 'targets',
  module: new URL('../subjects/targets.js', import.meta.url),
  width: 500,
  valid: [
    { url: 'https://shop.example/hook' },
    { url: 'http://127.0.0.1/' },
    { addresses: ['8.8.8.8', '2606:4700::1'], allow: ['10.0.0.0/8'] },
    { values: ['a', 'b', 'c', 'd'] }
  ],
  inputs: fc.oneof(
    { weight: 5, arbitrary: fc.record({ url }) },
    { weight: 2, arbitrary: fc.record({ url: url.chain(one => mutated(one)) }) },
    {
      weight: 3,
      arbitrary: fc.record(
        { addresses: fc.array(address, { maxLength: 3 }), allow: fc.array(allowEntry, { maxLength: 2 }) },
        { requiredKeys: ['addresses'] }
      )
    },
    {
      weight: 2,
      arbitrary: fc.record({
        values: fc.array(
          fc.oneof(
            fc.string({ unit: 'binary' }),
            fc.constantFrom(
              '..',
              '.',
              '',
              '%2e%2e',
              '../..',
              '@evil.example',
              '//evil.example',
              '\\',
              '?',
              '#',
              ':80'
            )
          ),
          { minLength: 4, maxLength: 4 }
        )
      })
    }
  )
})
