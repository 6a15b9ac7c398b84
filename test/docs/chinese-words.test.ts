// The Chinese texts use one word for one thing. docs/zh/terms.md lists the words that they do not use.
import { readFileSync, readdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'

const root = path.resolve(import.meta.dirname, '../../..')
const terms = 'docs/zh/terms.md'
const heading = '## 不用的说法'
const within = (folder: string): string[] =>
  readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' })
    .filter(name => !name.includes('node_modules'))
    .map(name => `${folder}/${name}`)
const files = [
  'README.zh-CN.md',
  ...within('docs/zh').filter(file => file.endsWith('.md')),
  ...within('examples').filter(file => file.endsWith('/README.zh-CN.md')),
  ...within('src/ui/texts').filter(file => file.endsWith('zh.ts')),
  'src/alarm/texts.ts',
  'src/api/chinese-problems.ts',
  'src/domain/waiting-for.ts'
]

const read = (file: string): string => readFileSync(path.join(root, file), 'utf8')
const [chosen = '', listed = ''] = read(terms).split(heading)
const rejected = [...listed.matchAll(/^\| ([^|]*\p{Script=Han}[^|]*) \| ([^|]+) \|$/gmu)]
  .map(([, word = '', instead = '']) => ({ word, instead }))
  .filter(({ word }) => word !== '不用')

/** Each line with a rejected word, and the word to use. */
const found = (file: string, text: string): string[] =>
  text
    .split('\n')
    .flatMap((line, at) =>
      rejected
        .filter(({ word }) => line.includes(word))
        .map(({ word, instead }) => `${file}:${at + 1}: ${word}, use ${instead}`)
    )

t.test('a Chinese reader meets one word for one thing, in the docs and in the dashboard', async t => {
  t.ok(files.length > 40)
  for (const file of files) t.same(found(file, file === terms ? chosen : read(file)), [], file)
})

/** A Chinese sentence has Chinese punctuation. Code, targets of links and drawings are not sentences. */
const halfWidth = (file: string, text: string): string[] =>
  text
    .replaceAll(/^```[^]*?^```$|^ {4}.*$|`[^`\n]*`|\]\([^)\n]*\)/gm, code => code.replaceAll(/[^\n]/g, ''))
    .split('\n')
    .flatMap((line, at) =>
      /\p{Script=Han}[,;:?(]|[,;:?)]\p{Script=Han}/u.test(line)
        ? [`${file}:${at + 1}: ${line.slice(0, 60)}`]
        : []
    )

t.test('a Chinese sentence has Chinese punctuation', async t => {
  for (const file of files.filter(name => name.endsWith('.md'))) t.same(halfWidth(file, read(file)), [], file)
  t.same(halfWidth('a.md', '对,\n`甲(乙)`，[丙](d.md)。\n\n    丁:戊\n'), ['a.md:1: 对,'])
})

t.test('a rejected word is found with its place and the word to use', async t => {
  t.ok(rejected.length > 10)
  t.same(found('a.md', '收到回执\n请重新投递。'), ['a.md:2: 重新投递, use 重投'])
})
