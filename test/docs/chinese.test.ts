// The Chinese pages match the English pages: the same commands, settings, numbers, links and tables.
import { readdirSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { page, type Page } from './markdown.ts'
import { differences, englishOf, wronglyMarked, type Languages } from './translation.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const files = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' })
  .filter(name => name.endsWith('.md'))
  .map(name => `docs/${name}`)
/** It has no English page: it maps the terms of both languages. */
const terms = 'docs/zh/terms.md'
const inChinese = ['README.zh-CN.md', ...files.filter(name => name.startsWith('docs/zh/') && name !== terms)]
const inEnglish = [
  'README.md',
  'CONTRIBUTING.md',
  'SECURITY.md',
  'examples/README.md',
  ...files.filter(name => !name.startsWith('docs/zh/'))
]
const languages: Languages = {
  english: new Map(inEnglish.map(file => [file, page(root, file)])),
  chinese: new Map(inChinese.map(file => [englishOf(file), page(root, file)]))
}

t.test('what a newcomer, a producer, a receiver and an operator read is there in Chinese', async t => {
  // Lists and logs that grow with the code are in English only.
  const ours = /^docs\/(decisions|licences|release|notes\/.*|reports\/.*|reference\/.*)\.md$/
  const wanted = inEnglish.filter(file => !ours.test(file))
  t.ok(wanted.length > 30)
  t.same(
    wanted.filter(file => !languages.chinese.has(file)),
    []
  )
})

for (const [file, chinese] of languages.chinese)
  t.test(`${chinese.file} says what ${file} says`, async t => {
    const english = languages.english.get(file)
    t.ok(english, `${file} is there`)
    if (english) t.same(differences(english, chinese, languages), [])
  })

for (const file of [...inChinese, terms])
  t.test(`${file} says of each link into a page that is there in English only that it is`, async t => {
    t.same(wronglyMarked(page(root, file), languages), [])
  })

t.test('every term is in both tables of the terms at most once', async t => {
  const rows = page(root, terms)
    .text.split('\n')
    .filter(line => line.startsWith('| '))
    .map(line => line.split(' | ')[0])
  t.ok(rows.length > 60)
  t.same(rows.length, new Set(rows).size)
})

const made = (file: string, text: string): Page => ({
  file,
  text,
  blocks: [],
  links: [],
  anchors: new Set([...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading)),
  code: []
})

const left = `# Pause

Set \`SWEEP_MS\` to 40 ms, then read [more](more.md#b).

\`\`\`sh
npm run key -- list   # all keys
\`\`\`

| a | b |
|---|---|
| 1 | 2 |

- last

    GET /keys      what is held
    do the work

\`\`\`
 POST /tasks ──► PostgreSQL: the task ──► 201
\`\`\`

![the page](page-en.png)
`
const right = `# 暂停

把 \`SWEEP_MS\` 设为 40 ms，再看[更多](more.md#乙)。

\`\`\`sh
npm run key -- list   # 全部密钥
\`\`\`

| 甲 | 乙 |
|---|---|
| 1 | 2 |

- 最后

    GET /keys      被卡住的
    做事

\`\`\`
 POST /tasks ──► PostgreSQL：任务 ──► 201
\`\`\`

![页面](../page-zh.png)
`

t.test(
  'a link into an English page that does not say so is found, and one that says so of a Chinese page',
  async t => {
    const only = made('docs/only.md', '# only')
    const more = made('docs/more.md', '# a')
    const chinese = made('docs/zh/more.md', '# 甲')
    const known: Languages = {
      english: new Map([only, more].map(one => [one.file, one])),
      chinese: new Map([['docs/more.md', chinese]])
    }
    const found = (text: string): string[] => wronglyMarked(made('docs/zh/pause.md', text), known)
    for (const right of [
      '看[这里](../only.md)（英文）。',
      '看[这里](../only.md#b)（英文）',
      '看[这里](more.md)、[那里](#b)、[网站](https://a.example/b.md)',
      '[English](../pause.md)',
      '[代码](../../handlers/order-paid.ts)',
      '```sh\n[这里](../only.md)\n```\n'
    ])
      t.same(found(right), [], right)
    for (const [wrong, says] of [
      ['看[这里](../only.md)。', 'not marked with （英文）: docs/only.md'],
      ['看[这里](../only.md#b)，[那里](../only.md)（英文）', 'not marked with （英文）: docs/only.md'],
      ['看[这里](../../SECURITY.md)', 'not marked with （英文）: SECURITY.md'],
      ['看[这里](more.md)（英文）', 'marked with （英文）, but it is there in Chinese: docs/zh/more.md'],
      ['看[这里](../more.md)（英文）', 'marked with （英文）, but it is there in Chinese: docs/more.md']
    ] as const)
      t.same(found(wrong), [says], wrong)
  }
)

t.test('a translation that says something else is found', async t => {
  const more = made('docs/more.md', '# a\n## b\n')
  const found = (text: string): string[] => {
    const english = made('docs/pause.md', left)
    const chinese = made('docs/zh/pause.md', text)
    return differences(english, chinese, {
      english: new Map([english, more].map(one => [one.file, one])),
      chinese: new Map(
        [chinese, made('docs/zh/more.md', '# 甲\n## 乙\n')].map(one => [englishOf(one.file), one])
      )
    })
  }
  t.same(found(right), [], 'the pair as it should be')
  const wrong: [what: string, from: string, to: string, says: RegExp][] = [
    ['another command', 'key -- list', 'key -- create', /^block: npm run key -- list ≠/],
    ['a command less', 'npm run key -- list   # 全部密钥\n', '', /^block/],
    ['another setting', 'SWEEP_MS', 'SWEEP_S', /code missing in Chinese: SWEEP_MS/],
    ['another number', '40 ms', '50 ms', /number missing in Chinese: 40/],
    ['another heading', '# 暂停', '## 暂停', /part 0 is h1, and h2/],
    ['a heading more', '- 最后', '## 更多\n\n- 最后', /is item, and h2/],
    ['a row less', '| 1 | 2 |\n', '', /table 3×2, and table 2×2/],
    ['a table less', '| 甲 | 乙 |\n|---|---|\n| 1 | 2 |\n', '', /is table 3×2, and item/],
    ['another link', 'more.md#乙', 'other.md', /link missing in Chinese: docs\/more\.md#1/],
    ['another place', '#乙', '#甲', /link missing in Chinese: docs\/more\.md#1/],
    ['a link to the English page', 'more.md#乙', '../more.md#b', /\(English\)/],
    ['another call', 'GET /keys ', 'GET /key ', /^block: GET \/keys ≠ GET \/key/],
    ['a drawing of something else', '──► PostgreSQL', '──► Redis', /name of a drawing missing.*: PostgreSQL/],
    ['another picture', 'page-zh.png', 'pages-zh.png', /link missing in Chinese: docs\/page-en\.png/],
    ['a block is missing', '\n    GET /keys      被卡住的\n    做事\n', '', /is block, and block/],
    ['the end is missing', '![页面](../page-zh.png)\n', '', /is text, and the end/],
    ['English left over', '- 最后', '- the last item is still here', /not translated/]
  ]
  for (const [what, from, to, says] of wrong) {
    t.ok(right.includes(from), `${what}: the text is there`)
    const all = found(right.replace(from, to))
    t.ok(
      all.some(one => says.test(one)),
      `${what}: ${all.join('; ')}`
    )
  }
})
