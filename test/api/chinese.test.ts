// Whoever asks for Chinese reads what is wrong in Chinese; programs read the same code and pointer.
import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { chineseDetails, chineseTitles, inChinese, wantsChinese } from '../../src/api/chinese-problems.ts'
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
  const said = ['api', 'json', 'delivery']
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
    ','.repeat(9_000)
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

t.test('what is no request gets English', async t => {
  const { port } = await listening(t)
  const { all } = await talk(
    port,
    request('GET /tasks HTTP/9.9', ['Host: ackbox.test', 'Accept-Language: zh'])
  )
  t.match(all[0]?.headers, { 'content-language': 'en' })
  t.match(all[0]?.body, '"title":"Malformed HTTP request"')
})
