// Hostile producers against a whole service on a real database: PostgreSQL may refuse values that a fake accepts.
// Takes long: npm run test:long.
import t from 'tap'
import { access } from '../../src/api/access.ts'
import { bad, good, naughty, uncarried } from '../json/corpus.ts'
import { start } from '../support/service.ts'
import { stage } from '../support/stage.ts'

t.setTimeout(2_400_000)

const headers = { 'content-type': 'application/json' }
/** Texts that a path or a query can carry and a column cannot, or that are read as something else on the way. */
const hostile = [
  ...naughty,
  '\0',
  'a\0b',
  '\u{ffff}',
  '%',
  '%%%',
  "'",
  '"',
  '{}',
  '[]',
  'x'.repeat(400),
  '9'.repeat(400),
  '-1',
  '1e9',
  '2026-02-30T00:00:00Z',
  '0000-01-01T00:00:00Z',
  '9999-12-31T23:59:59.999999999999Z',
  '00000000-0000-0000-0000-000000000000',
  'ffffffff-ffff-ffff-ffff-ffffffffffff:\0',
  'ffffffff-ffff-ffff-ffff-ffffffffffff:a:999999999:FAILED',
  'ffffffff-ffff-ffff-ffff-ffffffffffff:a:999999999999:FAILED',
  'ffffffff-ffff-ffff-ffff-ffffffffffff:::::',
  'infinity',
  'now'
]

t.test('no path, query or body makes a whole service answer 5xx, or leaves a row behind a 4xx', async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, on.env)
  const statuses = new Map<number, number>()
  const wrong: string[] = []
  const expected = new Set([200, 201, 202, 400, 401, 403, 404, 405, 409, 413, 414, 415, 422])
  const ask = async (route: string, init: RequestInit = {}, left = 5): Promise<number> => {
    const [method = '', target = ''] = route.split(' ')
    const answer = await fetch(service.url + target, { method, ...init })
    const text = await answer.text()
    // A busy machine returns 503 now and then. A 503 that the request itself causes is repeated.
    if (answer.status === 503 && left > 0) {
      await new Promise(resolve => setTimeout(resolve, 1_000))
      return ask(route, init, left - 1)
    }
    statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1)
    if (!expected.has(answer.status))
      wrong.push(`${route.slice(0, 200)}: ${answer.status} ${text.slice(0, 200)}`)
    return answer.status
  }
  const count = async (): Promise<number> => {
    const [row] = await on.sql<{ n: number }[]>`select count(*)::int as n from task`
    return row?.n ?? 0
  }

  for (const route of Object.keys(access).filter(one => one.includes(':'))) {
    for (const text of hostile) await ask(route.replace(/:\w+/, encodeURIComponent(text)))
    for (const raw of [
      '%00',
      '%zz',
      '%',
      '%c0%af',
      '%ed%a0%80',
      '%2e%2e%2f',
      '..%5c',
      '%0d%0aSet-Cookie:%20a=b',
      '%ff'
    ])
      await ask(route.replace(/:\w+/, raw))
  }
  const members = {
    '/tasks': [
      'status',
      'messageCode',
      'sceneType',
      'downstream',
      'needCallback',
      'from',
      'to',
      'cursor',
      'limit'
    ],
    '/deliveries': [
      'status',
      'phase',
      'reason',
      'messageCode',
      'downstream',
      'from',
      'to',
      'cursor',
      'limit'
    ],
    '/alarms': ['kind', 'open', 'messageCode', 'downstream', 'from', 'to', 'cursor', 'limit'],
    '/tasks/none': ['wait', 'timeout']
  }
  for (const [path, names] of Object.entries(members)) {
    for (const name of names) {
      for (const text of hostile) await ask(`GET ${path}?${name}=${encodeURIComponent(text)}`)
      await ask(`GET ${path}?${name}=1&${name}=2`)
      await ask(`GET ${path}?${name}[]=1&${name}[a]=2&__proto__[x]=1`)
      await ask(`GET ${path}?${name}`)
    }
  }
  t.same(wrong, [], 'paths and queries')
  t.equal(await count(), 0)

  const order = { messageCode: 'test.plain', messageBody: { n: 1 } }
  const posts: [url: string, body: string | Uint8Array][] = []
  for (const [, text] of [...bad, ...uncarried]) {
    const bytes = Buffer.from(text as string)
    for (const url of ['/tasks', '/tasks/batch', '/callback', '/tasks/none/redeliver'])
      posts.push([url, bytes])
    const inside = [
      Buffer.from('{"taskNo":"bad","messageCode":"test.plain","messageBody":'),
      bytes,
      Buffer.from('}')
    ]
    posts.push(['/tasks', Buffer.concat(inside)])
    posts.push(['/tasks/batch', Buffer.concat([Buffer.from('{"tasks":['), ...inside, Buffer.from(']}')])])
  }
  for (const [, text] of good) posts.push(['/tasks', text], ['/callback', text], ['/tasks/batch', text])
  for (const text of hostile) {
    for (const member of [
      'taskNo',
      'messageCode',
      'sceneType',
      'deliverStartTime',
      'deliverBefore',
      'delay',
      'retryTimes',
      'extend',
      'needCallback',
      text
    ])
      posts.push(['/tasks', JSON.stringify({ ...order, messageBody: { n: 'no' }, [member]: text })])
    for (const member of ['taskNo', 'messageCode', 'downstream', 'result', 'reason', 'data', text])
      posts.push(['/callback', JSON.stringify({ taskNo: 'none', messageCode: 'test.plain', [member]: text })])
    posts.push(['/tasks/none/redeliver', JSON.stringify({ downstream: text, force: text })])
  }
  for (const [url, body] of posts) {
    const status = await ask(`POST ${url}`, { headers, body: Buffer.from(body) })
    if (url === '/tasks' && status < 400)
      wrong.push(`POST ${url} ${Buffer.from(body).toString().slice(0, 200)}: ${status}`)
  }
  t.same(wrong, [], 'bodies')
  t.equal(await count(), 0, 'not one row')
  t.comment(JSON.stringify(Object.fromEntries(statuses)))

  const kept = hostile.filter(text => !text.includes('\0'))
  for (const [n, text] of kept.entries()) {
    const extend = { note: text.slice(0, 200) }
    const body = JSON.stringify({ ...order, taskNo: `kept-${n}`, extend })
    t.equal(await ask('POST /tasks', { headers, body }), 201)
    const shown = (await (await fetch(`${service.url}/tasks/kept-${n}`)).json()) as object
    t.match(shown, { extend }, 'what can be kept comes back as it was')
  }
  t.equal(await count(), kept.length)
  t.notMatch(service.output(), /api\.bug|"level":60/)
  t.same(await service.kill('SIGTERM'), { code: 0, signal: null }, 'it lived to the end')
})
