import { execFile } from 'node:child_process'
import { setTimeout as sleep } from 'node:timers/promises'
import { promisify } from 'node:util'
import t from 'tap'
import { freePort } from '../../../src/embedded/port.ts'
import { balancer } from '../../support/balancer.ts'
import { eachOf, postUntilTaken, settled, start } from '../../support/service.ts'
import { repeated, stage, tally } from '../../support/stage.ts'
import { until } from '../../support/until.ts'
import { version } from '../../../src/runtime/package.ts'
import { nextRelease } from './next.ts'

t.setTimeout(2_400_000)

t.test('an upgrade, process by process under load, loses nothing and sends nothing twice', async t => {
  const on = await stage(t, { redis: true })
  if (!on) return
  const { sql, databaseUrl, downstream } = on
  const next = nextRelease(t, '9.9.9')
  const ports = [String(await freePort()), String(await freePort())]
  const urls = ports.map(port => `http://127.0.0.1:${port}`)
  const front = await balancer(t, urls)
  const env = { ...on.env, PUBLIC_URL: front.url }
  const versions = async (): Promise<string[]> =>
    (await sql<{ version: string }[]>`select distinct version from node order by 1`).map(row => row.version)
  const started = (port: string | undefined) => start(t, { ...env, PORT: port })
  const startedNext = (port: string | undefined) =>
    start(t, { ...env, PORT: port, HANDLERS_DIR: next.handlersDir }, next.main)

  const former = await Promise.all(ports.map(port => started(port)))
  const posted: string[] = []
  let over = false
  const producing = Promise.all(
    Array.from({ length: 4 }, async (_, producer) => {
      for (let i = 0; !over; i++) {
        const taskNo = `up-${producer}-${i}`
        const messageCode = i % 2 === 0 ? 'test.plain' : 'test.receipt'
        await postUntilTaken(() => front.url, { taskNo, messageCode, messageBody: { n: i } })
        posted.push(taskNo)
        await new Promise(resolve => setTimeout(resolve, 20))
      }
    })
  )
  const more = async (n: number): Promise<void> => {
    const now = posted.length
    await until(`${n} more are posted`, () => posted.length >= now + n)
  }

  await more(50)
  const env2 = { PATH: process.env['PATH'], DATABASE_URL: databaseUrl }
  const { stdout } = await promisify(execFile)(process.execPath, [next.program, 'migrate'], { env: env2 })
  t.match(stdout, /^applied 9999_next/, 'first the tables, while the former version goes on')
  await more(50)
  t.same(await former[0]?.kill('SIGTERM'), { code: 0, signal: null })
  const first = await startedNext(ports[0])
  await more(100)
  t.same(await versions(), [version, '9.9.9'].sort(), 'both versions work side by side')
  t.same(await first.kill('SIGTERM'), { code: 0, signal: null }, 'a rollback is a restart')
  const back = await started(ports[0])
  t.match(back.output(), /"msg":"schema.newer"/, 'the former version starts on the newer tables')
  await more(50)
  t.same(await back.kill('SIGTERM'), { code: 0, signal: null })
  await startedNext(ports[0])
  await more(50)
  t.same(await former[1]?.kill('SIGTERM'), { code: 0, signal: null })
  await startedNext(ports[1])
  await more(50)
  over = true
  await producing

  // The balancer may end an idle connection at the moment at which it is used.
  const ends = await eachOf(posted, async taskNo => {
    for (;;) {
      const end = await settled(front.url, taskNo).catch(() => sleep(100))
      if (end) return end
    }
  })
  t.same(new Set(ends.map(({ body }) => body?.['status'])), new Set(['HANDLED']), `${posted.length} tasks`)
  t.same(await tally(sql), { HANDLED: posted.length }, 'and there are no others')
  t.same(
    posted.filter(taskNo => downstream.count(taskNo) === 0),
    [],
    'each has reached its downstream'
  )
  t.same(await repeated(sql, downstream), [], 'no more often than once')
  t.same(await versions(), ['9.9.9'])
})
