// Whole processes on a database whose own settings change the meaning of statements.
import path from 'node:path'
import t from 'tap'
import { producer } from '../support/halves.ts'
import { call, settled, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { withStrangeSettings } from '../support/strange-settings.ts'

t.setTimeout(2_400_000)

t.test('two first starts at once, tasks and half messages work as on any other database', async t => {
  const on = await stage(t)
  if (!on) return
  const shop = await producer(t, () => 'COMMITTED')
  on.env['HANDLERS_DIR'] = path.resolve(import.meta.dirname, '../support/half')
  on.env['TEST_PRODUCER'] = shop.url
  on.env['EGRESS_ALLOW'] += `,${new URL(shop.url).host}`
  await withStrangeSettings(on.databaseUrl)
  const [one, two] = await Promise.all([start(t, on.env), start(t, on.env)])

  const due = new Date(Date.now() + 500).toISOString()
  const task = { messageCode: 'test.half', messageBody: { n: 1 } }
  t.match(await call(`${one.url}/tasks`, { ...task, taskNo: 'plain', deliverStartTime: due }), {
    status: 201
  })
  const { body } = await settled(two.url, 'plain')
  t.match(body, { status: 'HANDLED', deliverStartTime: due })
  t.notHas(body, { bizType: String })
  t.match(await call(`${one.url}/tasks?bizType=NULL`), { status: 200, body: { tasks: [] } })

  // Whoever ends it: each call hears what became of it, and none that Ackbox has a bug.
  const numbers = Array.from({ length: 30 }, (_, n) => `half-${n}`)
  for (const taskNo of numbers) {
    const prepared = await call(`${one.url}/tasks`, { ...task, taskNo, prepared: true })
    t.equal(prepared.status, 201)
  }
  const answers = await Promise.all(
    numbers.flatMap(taskNo =>
      ['commit', 'rollback', 'check'].map((act, n) =>
        call(`${(n % 2 ? two : one).url}/tasks/${taskNo}/${act}`, undefined, 'POST')
      )
    )
  )
  t.same(
    answers.filter(({ status }) => ![200, 202, 409].includes(status)),
    []
  )
  for (const { url } of [one, two]) t.match(await call(`${url}/readyz`), { status: 200 })
  for (const process of [one, two]) {
    t.notMatch(process.output(), /"level":50/)
    t.equal((await process.kill('SIGTERM')).code, 0)
  }
})
