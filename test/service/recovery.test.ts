// A downstream is down for long and then recovers: everything is delivered within a backoff, and not all at the same moment.
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import t from 'tap'
import { testDb } from '../support/postgres.ts'
import { folder, postUntilTaken, secret, settled, start } from '../support/service.ts'
import { sink } from '../support/sink.ts'
import { stopwatch } from '../support/stopwatch.ts'

t.setTimeout(600_000)

const tasks = 60
const concurrency = 5
const backoffMs = 500

t.test(
  'D39 answered 503 for long, then 200: delivered within one backoff, never more than the limit at once',
  async t => {
    let well = false
    let sinceWell = (): number => 0
    let wellAt = 0
    let last = Infinity
    let now = 0
    let most = 0
    let refused = 0
    let tell = (): void => {}
    const longEnough = new Promise<void>(resolve => {
      tell = resolve
    })
    const downstream = await sink(t, {
      answer: async () => {
        most = Math.max(most, ++now)
        await new Promise(resolve => setTimeout(resolve, 10))
        now--
        if (well) {
          last = sinceWell()
          return 200
        }
        // By now each task was refused about four times.
        if (++refused === tasks * 4) tell()
        return 503
      }
    })
    const handlers = folder(t)
    writeFileSync(
      path.join(handlers, 'down.mjs'),
      `import { defineHandler, z } from 'ackbox/handler'
export default defineHandler({
  messageCode: 'down',
  body: z.unknown(),
  downstreams: {
    down: {
      transport: 'http',
      request: ({ raw }) => ({ url: '${downstream.url}/down', body: raw }),
      retry: { times: 100, backoff: ['${backoffMs}ms'] },
      limit: { concurrency: ${concurrency}, timeout: '10s' }
    }
  }
})
`
    )
    const { url } = await testDb(t)
    const service = await start(t, {
      DATABASE_URL: url,
      SECRET: secret,
      AUTH: 'off',
      DATA_DIR: folder(t),
      HANDLERS_DIR: handlers,
      EGRESS_ALLOW: new URL(downstream.url).host
    })
    const taskNos = Array.from({ length: tasks }, (_, i) => `down-${i}`)
    for (const taskNo of taskNos)
      await postUntilTaken(() => service.url, { taskNo, messageCode: 'down', messageBody: { taskNo } })
    await longEnough
    sinceWell = stopwatch(t)
    well = true
    wellAt = Date.now()
    const ends = await Promise.all(taskNos.map(taskNo => settled(service.url, taskNo)))
    t.same(new Set(ends.map(({ body }) => body?.['status'])), new Set(['HANDLED']))
    // The backoff, its tenth of jitter, and 6 s for the sweep, the send and a busy machine.
    t.ok(last < backoffMs * 1.1 + 6_000, `the last one came ${last} ms after it was well`)
    t.ok(most <= concurrency, `${most} at once, at most ${concurrency} are allowed`)
    const after = downstream.requests.filter(({ at }) => at > wellAt).length
    t.ok(after <= tasks + concurrency, `${after} requests once it was well`)
  }
)
