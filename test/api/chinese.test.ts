// A caller that requests Chinese gets the error texts in Chinese. The code and the pointer stay the same for programs.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { z } from 'zod'
import { chineseDetails, chineseTitles, inChinese, wantsChinese } from '../../src/api/chinese-problems.ts'
import { invalid } from '../../src/api/problem.ts'
import { problemBody, problems, type ProblemCode } from '../../src/runtime/errors.ts'
import { api, inject, listening, order } from './fake.ts'
import { request, talk } from './socket.ts'

const codes = Object.keys(problems) as ProblemCode[]
const wrong = { ...order, taskNo: 'zh-1', bizType: 'order' }

t.test('every problem has its title in Chinese, in the words of the pages', async t => {
  for (const code of codes) {
    t.match(chineseTitles[code], /\p{Script=Han}/u, code)
    t.notMatch(chineseTitles[code], /[。.]$/, `${code} is a title, no sentence`)
  }
  t.equal(new Set(Object.values(chineseTitles)).size, codes.length, 'each has its own')
})

t.test('every detail in Chinese is one that is said in English', async t => {
  const src = path.resolve(import.meta.dirname, '../../../src')
  const said = ['api', 'json', 'delivery', 'runtime']
    .flatMap(room => readdirSync(path.join(src, room)).map(file => path.join(src, room, file)))
    .filter(file => file.endsWith('.ts') && !file.endsWith('chinese-problems.ts'))
    .map(file => readFileSync(file, 'utf8'))
    .join('\n')
  for (const [english, chinese] of Object.entries(chineseDetails)) {
    t.ok(said.includes(`'${english}'`), english)
    t.match(chinese, /\p{Script=Han}/u, english)
    t.match(inChinese(problemBody('INVALID', english)), { detail: chinese }, 'it is found as it is sent')
  }
})

t.test('the common errors of a schema are in Chinese too, each by a pattern of its own', async t => {
  const schema = z.strictObject({
    name: z.string().min(2).max(3),
    count: z.number().min(1).max(5),
    share: z.number().gt(0).lt(1),
    kind: z.enum(['a', 'b']),
    always: z.literal('yes'),
    either: z.union([z.string(), z.number()]),
    list: z.array(z.number()).min(1).max(2)
  })
  const right = { name: 'abc', count: 2, share: 0.5, kind: 'a', always: 'yes', either: 'x', list: [1] }
  const cases: [value: object, chinese: string][] = [
    [{ name: 7 }, '类型应为 string，实际是 number'],
    [{ name: undefined }, '缺少这个成员：类型应为 string'],
    [{ name: 'a' }, '最少 2 个字符'],
    [{ name: 'abcd' }, '最多 3 个字符'],
    [{ count: 0 }, '不能小于 1'],
    [{ count: 6 }, '不能大于 5'],
    [{ share: 0 }, '必须大于 0'],
    [{ share: 1 }, '必须小于 1'],
    [{ kind: 'c' }, '应为其中之一："a"|"b"'],
    [{ always: 'no' }, '应为 "yes"'],
    [{ either: null }, '类型不符'],
    [{ list: [] }, '最少 1 项'],
    [{ list: [1, 2, 3] }, '最多 2 项'],
    [{ more: 1 }, '未知的成员："more"']
  ]
  for (const [change, chinese] of cases) {
    const { error } = schema.safeParse({ ...right, ...change })
    const { message, pointer } = invalid(error!)
    t.match(inChinese(problemBody('INVALID', message, pointer)), { detail: chinese })
  }
  for (const [detail, chinese] of [
    ['requires the scope ops:read', '需要权限 ops:read'],
    ['requires the scope tasks:write or ops:write', '需要权限 tasks:write 或 ops:write']
  ] as const)
    t.match(inChinese(problemBody('FORBIDDEN', detail)), { detail: chinese })
})

t.test('what the rules of a request say in their own words is in Chinese too', t => {
  const src = path.resolve(import.meta.dirname, '../../../src/api')
  const said = readdirSync(src)
    .filter(file => /^(requests|queries|task-rules|session|task-actions|downstreams|reconcile)/.test(file))
    .flatMap(file => [
      ...readFileSync(path.join(src, file), 'utf8').matchAll(/'(must (?:be|have|not) [^']+)'/g)
    ])
    .map(([, english = '']) => english)
  t.ok(said.length > 15)
  for (const english of [...said, 'must be up to 255 characters, none of them a control character'])
    t.match(inChinese(problemBody('INVALID', english)).detail, /\p{Script=Han}/u, english)
  t.end()
})

t.test('code, status, type and pointer are the same in both languages', async t => {
  const errors = [
    { detail: 'set bizType too', pointer: '/a' },
    { detail: 'another one', pointer: '/b' }
  ]
  const english = problemBody('INVALID', 'named 42', '/a', errors)
  t.same(inChinese(english), {
    ...english,
    title: chineseTitles.INVALID,
    errors: [{ detail: chineseDetails['set bizType too'], pointer: '/a' }, errors[1]]
  })
})

t.test('Accept-Language decides', async t => {
  for (const header of ['zh', 'zh-CN', 'ZH-hans-CN;q=0.9, en;q=0.8', 'fr, zh;q=0.5', 'zh,en', 'zh, *;q=0.1'])
    t.ok(wantsChinese(header), header)
  for (const header of [
    undefined,
    '',
    '*',
    'en',
    'en, zh',
    'en-US,en;q=0.9,zh;q=0.8',
    'zh;q=0',
    'zh;q=zh',
    'xzh',
    'de;zh',
    ','.repeat(9_000),
    `zh${' '.repeat(1_000_000)}!` // would take an hour with two expressions for the same spaces
  ])
    t.notOk(wantsChinese(header), String(header).slice(0, 30))
})

t.test('a refusal says its language, and that the language was chosen', async t => {
  const { app } = await api(t)
  const ask = (language?: string) =>
    inject(
      app,
      '/tasks',
      JSON.stringify(wrong),
      language === undefined ? {} : { 'accept-language': language }
    )
  const [none, english, chinese] = [await ask(), await ask('en'), await ask('zh-CN,zh;q=0.9,en;q=0.8')]
  for (const answer of [none, english, chinese]) {
    t.equal(answer.statusCode, 422)
    t.equal(answer.headers['vary'], 'accept-language')
    t.match(answer.json(), { code: 'INVALID', status: 422, pointer: '/bizKey' })
  }
  t.equal(none.headers['content-language'], 'en')
  t.equal(none.body, english.body)
  t.equal(chinese.headers['content-language'], 'zh-CN')
  t.match(chinese.json(), {
    title: chineseTitles.INVALID,
    detail: chineseDetails['set both bizType and bizKey, or neither']
  })

  const absent = await app.inject({ url: '/nothing', headers: { 'accept-language': 'zh' } })
  t.match(absent.json(), { code: 'NOT_FOUND', title: '路径不存在' })
  const accepted = await inject(app, '/tasks', JSON.stringify(order), { 'accept-language': 'zh' })
  t.equal(accepted.statusCode, 201)
  t.equal(accepted.headers['content-language'], undefined, 'what is no problem has no language')
  t.equal(accepted.headers['vary'], undefined)
})

t.test('what is wrong with the JSON of a body is said in Chinese, with its place', async t => {
  const { app } = await api(t)
  const bodies: [body: string | Buffer, detail: string][] = [
    ['', '请求体为空'],
    [' ', '应为一个值，但文本到此为止，位于字节 1'],
    ['hello', '应为一个值，实际是 h，位于字节 0'],
    ['{"taskNo":tru}', '应为一个值，实际是 t，位于字节 10'],
    ['{"a":1,}', '应为带引号的成员名，实际是 }，位于字节 7'],
    ['{"a":1', '应为逗号或 }，但文本到此为止，位于字节 6'],
    ['{"a":1 "b":2}', '应为逗号或 }，实际是 "，位于字节 7'],
    ['{"a":[1 2]}', '应为逗号或 ]，实际是 2，位于字节 8'],
    ['{"a":[1', '应为逗号或 ]，但文本到此为止，位于字节 7'],
    ['{"a",1}', '应为冒号，实际是 ,，位于字节 4'],
    ['{} {}', '应为文本结尾，实际是 {，位于字节 3'],
    ['{"a":1}\u00e9', '应为文本结尾，实际是 0xC3，位于字节 7'],
    ['{"a":"\n"}', '字符串里有未转义的控制字符 0x0A，位于字节 6'],
    ['{"a":"\\ud800"}', '字符串里有不成对的代理项 0xD800，位于字节 6'],
    ['{"taskNo":"open', '字符串缺少结束的引号，位于字节 10'],
    [Buffer.from([0x22, 0xff, 0x22]), '不是 UTF-8，位于字节 1'],
    [`{"messageBody":${'['.repeat(100)}`, '嵌套超过 64 层，位于字节 79'],
    [`{"messageBody":[${'{"k":1},'.repeat(20_001)}0]}`, '超过 20000 个成员'],
    [`{${Array.from({ length: 2_000 }, (_, at) => `"k${at}":1`).join()}}`, 'messageBody 之外超过 1000 个成员']
  ]
  for (const [body, detail] of bodies) {
    const unread = await inject(app, '/tasks', body, { 'accept-language': 'zh' })
    t.equal(unread.statusCode, 400, detail)
    t.ok(unread.json<{ detail: string }>().detail.startsWith(detail), `${detail}: ${unread.body}`)
  }
  const scanner = readFileSync(path.resolve(import.meta.dirname, '../../../src/json/scanner.ts'), 'utf8')
  const expected = new Set([...scanner.matchAll(/#unexpected\('([^']+)'\)/g)].map(([, words = '']) => words))
  t.equal(expected.size, 6)
  for (const words of expected)
    for (const end of ['found x, at byte 1', 'but the text ends, at byte 1'])
      t.match(inChinese(problemBody('NOT_JSON', `Expected ${words}, ${end}`)), { detail: /^应为/ }, words)
})

t.test('what is no request gets English', async t => {
  const { port } = await listening(t)
  const { all } = await talk(
    port,
    request('GET /tasks HTTP/9.9', ['Host: ackbox.test', 'Accept-Language: zh'])
  )
  t.match(all[0]?.headers, { 'content-language': 'en' })
  t.match(all[0]?.body, '"title":"Malformed HTTP request"')
})
