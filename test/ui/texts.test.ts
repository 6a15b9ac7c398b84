import { readFileSync, readdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { en } from '../../src/ui/texts/en.ts'
import { zh } from '../../src/ui/texts/zh.ts'

/** Each text with its path. A function is called with texts. */
function textsOf(of: unknown, path = ''): [path: string, text: string][] {
  if (typeof of === 'string') return [[path, of]]
  if (typeof of === 'function') return [[path, (of as (...args: string[]) => string)('1', '2')]]
  return Object.entries(of as object).flatMap(([name, value]) => textsOf(value, `${path}.${name}`))
}

t.test('the Chinese word of a state stands only where the English text names that state', async t => {
  const chinese = new Map(textsOf(zh))
  const states: [word: string, state: RegExp][] = [
    ['已处理', /handled/i],
    ['投递中', /sending/i],
    ['发送中', /in flight/i],
    ['等待中', /waiting/i],
    ['已取消', /cancelled/i],
    ['已完成', /done/i],
    ['跳过', /skip/i]
  ]
  for (const [path, text] of textsOf(en))
    for (const [word, state] of states)
      if (chinese.get(path)?.includes(word)) t.match(text, state, `${path}: ${chinese.get(path)}`)
})

t.test('the two languages have the same texts', async t => {
  t.same(
    textsOf(zh).map(([path]) => path),
    textsOf(en).map(([path]) => path)
  )
})

t.test('a number stands in a text where a reader of its language expects it', async t => {
  t.equal(`${zh.operation.redelivered('101')} · ${zh.operation.skipped('0')}`, '已重投 101 · 已跳过 0')
  t.equal(en.operation.redelivered('101'), '101 redelivered')
  t.equal(zh.overview.perSecond('0.1'), '每秒 0.1')
  t.equal(en.overview.perSecond('0.1'), '0.1 per second')
  t.equal(zh.downstreams.atOnce(50), '并发 50')
  t.equal(zh.failures.times('12'), '12 次')
  // A page that writes a number before a text has the order of English.
  const before = /number\([^)]*\)\} \$?\{(?:words|texts)\b/
  t.match('{number(n)} {words.times}', before)
  const pages = path.resolve(import.meta.dirname, '../../../src/ui/pages')
  for (const name of readdirSync(pages))
    t.notMatch(readFileSync(path.join(pages, name), 'utf8'), before, name)
})
