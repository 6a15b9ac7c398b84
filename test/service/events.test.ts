// Takes long: npm run test:long.
import t from 'tap'
import { createKey, revokeKey, scopes } from '../../src/db/api-keys.ts'
import { start } from '../support/service.ts'
import { post, stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

/** Opens a stream of events and collects its text. */
async function hear(url: string, key: string) {
  const stop = new AbortController()
  const answer = await fetch(`${url}/events?taskNo=watched`, {
    headers: { authorization: `Bearer ${key}` },
    signal: stop.signal
  })
  let text = ''
  const reading = (async () => {
    for await (const chunk of answer.body ?? []) text += Buffer.from(chunk as Uint8Array).toString()
  })().catch(() => {})
  return { answer, text: () => text, stop: () => stop.abort(), reading }
}

t.test(
  'whoever watches hears of failures, acts and the watched task; a key of other messageCodes hears nothing',
  async t => {
    const on = await stage(t, { answer: () => 500 })
    if (!on) return
    const one = await start(t, { ...on.env, AUTH: 'on' })
    const keyFor = async (name: string, messageCodes: string[] | null) =>
      await createKey(on.sql, { name, scopes: [...scopes], messageCodes, who: { name: 'test' } })
    const [all, other] = [await keyFor('all', null), await keyFor('other', ['test.receipt'])]
    const call = (method: string, path: string, body?: object) =>
      fetch(`${one.url}${path}`, {
        method,
        headers: { authorization: `Bearer ${all.key}`, 'content-type': 'application/json' },
        ...(body ? { body: JSON.stringify(body) } : {})
      })
    const [mine, theirs] = [await hear(one.url, all.key), await hear(one.url, other.key)]
    t.match(mine.answer.headers.get('content-type'), /text\/event-stream/)
    t.equal(mine.answer.headers.get('x-accel-buffering'), 'no')
    const head = await call('HEAD', '/events')
    t.equal(head.status, 200, 'a HEAD is answered at once, and watches nothing')
    t.match(head.headers.get('content-type'), /text\/event-stream/)
    await until('both are heard', () => /retry/.test(mine.text()) && /retry/.test(theirs.text()))
    // Events before the first poll are not sent: a page reads that state itself.
    await until('a failure is told', async () => {
      await call('POST', '/tasks', {
        taskNo: `failing-${Date.now()}`,
        messageCode: 'test.plain',
        messageBody: { n: 1 },
        retryTimes: 1
      })
      return /"kind":"failure","messageCode":"test.plain","downstream":"plain"/.test(mine.text())
    })
    // The task is posted and has ended before the next poll.
    await call('POST', '/tasks', {
      taskNo: 'watched',
      messageCode: 'test.plain',
      messageBody: { n: 1 },
      retryTimes: 1
    })
    await until('the task is told', () => /\{"kind":"task","taskNo":"watched"\}/.test(mine.text()))
    await call('POST', '/downstreams/plain/pause')
    await until('an act is told', () => /"kind":"audit"/.test(mine.text()))

    await Promise.all([one.kill('SIGTERM'), mine.reading, theirs.reading])
    t.pass('a stop ends the streams, and is not held up by them')
    t.notMatch(theirs.text(), /failure|watched|plain|audit/)
  }
)

t.test('a hundred watch at most, and one who leaves makes room', async t => {
  const on = await stage(t)
  if (!on) return
  const one = await start(t, { ...on.env, AUTH: 'on' })
  const { key, id } = await createKey(on.sql, {
    name: 'all',
    scopes: [...scopes],
    messageCodes: null,
    who: { name: 'test' }
  })
  const heard = await Promise.all(Array.from({ length: 101 }, () => hear(one.url, key)))
  t.same(
    heard.map(one => one.answer.status).toSorted((a, b) => a - b),
    [...Array.from({ length: 100 }, () => 200), 429]
  )
  heard.find(one => one.answer.status === 200)?.stop()
  await until('there is room', async () => {
    const again = await hear(one.url, key)
    if (again.answer.status === 200) heard.push(again)
    return again.answer.status === 200
  })
  t.equal((await post(one.url, 'x')).status, 401)
  await revokeKey(on.sql, { id, who: { name: 'test' } })
  await until('a revoked key hears nothing new', async () => (await hear(one.url, key)).answer.status === 401)
  for (const one of heard) one.stop()
})
