// Takes long: npm run test:long.
import path from 'node:path'
import t from 'tap'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { weirdNames } from '../support/weird-values.ts'

t.setTimeout(600_000)

const placed = ['url', 'body', 'headers', 'header'] as const
const hooks = [
  'when',
  'beforeSend',
  'request',
  'accepted',
  'afterSend',
  'probe.request',
  'probe.handled',
  'send'
]
const cases = weirdNames.flatMap(value => [
  ...hooks.flatMap(hook => (['throw', 'reject', 'return'] as const).map(way => ({ hook, way, value }))),
  // Megabytes are only thrown: sending them would take the test's time.
  ...(value.startsWith('long') ? [] : placed.map(way => ({ hook: 'request', way, value })))
])
const atOnce = 100
const inGroups = async <T>(all: readonly T[], work: (one: T) => Promise<void>): Promise<void> => {
  for (let from = 0; from < all.length; from += atOnce)
    await Promise.all(all.slice(from, from + atOnce).map(work))
}
/** A `when` and an `afterSend` that fail do not keep a task from being sent. */
const harmless = ['when', 'afterSend']

interface Attempt {
  outcome: string
  reason?: string
}

t.test(
  'whatever a hook throws or returns, its own attempt ends with a reason and the process lives',
  async t => {
    const on = await stage(t)
    if (!on) return
    const service = await start(t, {
      ...on.env,
      HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/weird')
    })
    const nameOf = ({ hook, way, value }: (typeof cases)[number]) => `${hook}.${way}.${value}`
    await inGroups(cases, async one => {
      const answer = await call(`${service.url}/tasks`, {
        taskNo: nameOf(one),
        messageCode: 'test.weird',
        messageBody: one,
        // A target that is refused waits a minute for its next try.
        ...(one.way === 'url' ? { retryTimes: 1 } : {}),
        // Values of megabytes keep the process busy, and the downstream may close a connection meanwhile.
        ...(harmless.includes(one.hook) ? { retryTimes: 10 } : {})
      })
      t.equal(answer.status, 201, nameOf(one))
    })
    await inGroups(cases, async one => {
      const { body } = await settled(service.url, nameOf(one))
      const deliveries = body?.['deliveries'] as { status: string; attempts: Attempt[] }[]
      const sent = deliveries.filter(delivery => delivery.attempts.length > 0)
      if (harmless.includes(one.hook)) t.equal(sent[0]?.status, 'HANDLED', nameOf(one))
      // A delivery without an attempt would have lost its lease again and again.
      else if (!(one.hook === 'beforeSend' && one.way === 'return')) t.equal(sent.length, 1, nameOf(one))
      for (const { outcome, reason } of sent.flatMap(delivery => delivery.attempts))
        t.ok(outcome === 'delivered' || reason, `${nameOf(one)} has a reason: ${reason}`)
    })
    t.notMatch(service.output(), /"msg":"(?:attempt\.lost|crash)"|this is a bug/)
    t.match(await call(`${service.url}/healthz`), { status: 200 })
    t.match(await service.kill('SIGTERM'), { code: 0 })
  }
)

t.test('whatever a schema throws or says, the body is refused with 422', async t => {
  const on = await stage(t)
  if (!on) return
  const service = await start(t, {
    ...on.env,
    HANDLERS_DIR: path.resolve(import.meta.dirname, '../support/weird')
  })
  for (const value of weirdNames)
    for (const way of ['throw', 'return'] as const) {
      const answer = await call(`${service.url}/tasks`, {
        taskNo: `${value}.${way}`,
        messageCode: 'test.weird',
        messageBody: { hook: 'schema', way, value }
      })
      t.match(
        answer,
        { status: 422, body: { code: 'INVALID', pointer: /^\/messageBody/ } },
        `${value} ${way}`
      )
    }
  t.match(await service.kill('SIGTERM'), { code: 0 })
})
