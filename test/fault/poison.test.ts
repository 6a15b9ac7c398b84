// Takes long: npm run test:long.
import t from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { only } from '../support/only.ts'
import { call, postUntilTaken, settled, start } from '../support/service.ts'
import { story } from './story.ts'

t.setTimeout(2_400_000)

t.test('a task that kills its worker every time ends FAILED within its limit and two more', async t => {
  const of = await story(t, 'redis', { way: 'plain' })
  if (!of) return
  const api = await start(t, { ...of.env, ROLE: 'api,dispatcher' })
  await postUntilTaken(() => api.url, {
    taskNo: 'poison',
    messageCode: 'test.fault',
    messageBody: { n: 1 },
    retryTimes: 2
  })
  let killed = 0
  let ended = false
  let stop = (): void => {}
  const over = new Promise<void>(resolve => (stop = resolve))
  const dying = (async () => {
    while (!ended) {
      const worker = await start(t, {
        ...of.env,
        ROLE: 'worker',
        PORT: `${await freePort()}`,
        FAILPOINTS: 'execute.before_send=kill'
      })
      await Promise.race([worker.exited, over])
      if (!ended) killed++
      else await worker.kill('SIGTERM')
    }
  })()
  const { body } = await settled(api.url, 'poison')
  ended = true
  stop()
  await dying
  const [delivery] = (body?.['deliveries'] ?? []) as { attempt: number; reason: string }[]
  t.equal(body?.['status'], 'FAILED')
  t.equal(delivery?.reason, 'SEND_EXHAUSTED')
  t.ok(killed >= 2 && killed <= 4, `${killed} workers died: a limit of 2, and 2 that are not counted`)
  t.ok(
    (delivery?.attempt ?? 0) >= killed,
    'every death was an attempt; one let go for want of lease is no death'
  )
  const alarms = await of.db.sql`select kind from alarm`
  t.match(alarms, only({ kind: 'FAILED' }))
})

t.test('a task is answered again and again unclearly: the same POST converges to one row', async t => {
  const of = await story(t, 'redis', { way: 'plain' })
  if (!of) return
  for (const name of ['accept.before_commit', 'accept.after_commit']) {
    const one = await start(t, { ...of.env, PORT: `${await freePort()}`, FAILPOINTS: `${name}=kill` })
    const answer = call(`${one.url}/tasks`, {
      taskNo: 'again',
      messageCode: 'test.fault',
      messageBody: { n: 1 }
    })
    await t.rejects(answer, `nobody knows what became of it (${name})`)
    await one.exited
  }
  const sound = await start(t, of.env)
  const task = { taskNo: 'again', messageCode: 'test.fault', messageBody: { n: 1 } }
  t.equal((await postUntilTaken(() => sound.url, task)).status, 200)
  t.equal((await settled(sound.url, 'again')).body?.['status'], 'HANDLED')
  t.equal((await of.db.sql`select from task`).length, 1)
})
