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
