// A process dies or freezes at one failpoint on a task's path, and another process continues.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Test } from 'tap'
import { fetch } from 'undici'
import type { Failpoint } from '../../src/runtime/failpoint.ts'
import { freePort } from '../../src/embedded/port.ts'
import { testDb, type TestDb } from '../support/postgres.ts'
import { testRedis } from '../support/redis.ts'
import { postUntilTaken, secret, settled, start, type Process, untilHeard } from '../support/service.ts'
import { sink, type Sink } from '../support/sink.ts'
import { until } from '../support/until.ts'

/** How a task reaches the failpoint. */
export type Way = 'plain' | 'receipt' | 'later' | 'no receipt' | 'refused' | 'shutdown'

export interface Moment {
  name: Failpoint
  way: Way
  /** The maximum number of requests for the task at its downstream. */
  most: number
  /** How the delivery ends; HANDLED by default. */
  ends?: string
  /** The downstream delays its first answer, so that the failpoint is hit between request and answer. */
  isHeld?: true
  /** A frozen process that continues from here still writes its outcome, too late. */
  isStale?: true
}

/** The end of a lease, the sweep of a second, and two more seconds. */
export const rtoMs = 2_500 + 1_000 + 2_000

export interface Story {
  db: TestDb
  sink: Sink
  /** The failpoint was hit. Before that, a downstream whose receipt must not come in time sends none. */
  isBroken: boolean
  /** Its environment, without a failpoint. */
  env: { [name: string]: string }
}

let stories = 0
/** Longer than a failpoint waits during a send, shorter than the timeout of the handler. */
const heldMs = 700

/** A database, a queue and a downstream for this story only. Undefined: the story needs Redis and there is none. */
export async function story(
  t: Test,
  queue: 'redis' | 'postgres',
  { way, isHeld }: Pick<Moment, 'way' | 'isHeld'>
): Promise<Story | undefined> {
  const redis = queue === 'redis' ? await testRedis(t) : undefined
  if (queue === 'redis' && !redis) return undefined
  const db = await testDb(t)
  let arrived = 0
  const downstream = await sink(t, {
    async answer({ path }) {
      if (path !== '/faulty') return 200
      if (++arrived === 1 && isHeld) await sleep(heldMs)
      return way === 'refused' ? 410 : 200
    },
    // On a busy machine the first attempt may be released or time out: its number says nothing.
    receipts: () => way !== 'no receipt' || of.isBroken
  })
  const of: Story = {
    db,
    sink: downstream,
    isBroken: false,
    env: {
      DATABASE_URL: db.url,
      ...(redis && { REDIS_URL: redis.url }),
      REDIS_PREFIX: `fault${process.pid}-${++stories}`,
      SECRET: secret,
      AUTH: 'off',
      DEMO: 'off',
      HANDLERS_DIR: join(import.meta.dirname, 'handlers'),
      TEST_SINK: downstream.url,
      EGRESS_ALLOW: new URL(downstream.url).host,
      ALARM_WEBHOOK_URL: `${downstream.url}/alarm`,
      LEASE_MARGIN_MS: '1500',
      // A process that was frozen for longer than its stop may last would end with 1.
      SHUTDOWN_MS: '600000'
    }
  }
  return of
}

/** Starts a process with the failpoint. Resolves once the failpoint was hit and the process is dead or stopped. */
export async function broken(
  t: Test,
  of: Story,
  { name, way, isHeld }: Moment,
  action: 'kill' | 'stop',
  taskNo: string
): Promise<Process & { port: string }> {
  const port = await freePort()
  const one = await start(t, { ...of.env, PORT: `${port}`, FAILPOINTS: `${name}=${action}#1` })
  const posting = post(one.url, taskNo, way)
  if (way === 'shutdown') {
    await posting
    await settled(one.url, taskNo)
    void one.kill('SIGTERM')
  }
  await until(`${name} is hit`, () => one.output().includes(`"msg":"failpoint","name":"${name}"`))
  of.isBroken = true
  if (isHeld) {
    await until('the request is there', () => of.sink.requests.length > 0)
    t.equal(of.sink.requests.length, 1, 'it is the only one, and unanswered')
  }
  if (action === 'kill') await one.exited
  else await until('it stands still', () => / T /.test(stat(one.pid)))
  await posting
  return { ...one, port: `${port}` }
}

const stat = (pid: number): string => readFileSync(`/proc/${pid}/stat`, 'utf8')

const task = (taskNo: string, way: Way): object => ({
  taskNo,
  messageCode: 'test.fault',
  messageBody: { n: 1 },
  needCallback: way !== 'plain' && way !== 'shutdown',
  ...(way === 'later' && { delay: 300 })
})

/** Posts once, with any result: the process may die during the POST, or be stopped. */
async function post(url: string, taskNo: string, way: Way): Promise<void> {
  await untilHeard(async () => {
    const answer = await fetch(`${url}/tasks`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(task(taskNo, way)),
      signal: AbortSignal.timeout(3_000)
    }).catch(() => undefined)
    await answer?.arrayBuffer().catch(() => undefined)
    return { status: answer?.status ?? 0 }
  })
}

/** Repeats the POST, as a producer that does not know the result of the first. Returns the status. */
export const postAgain = async (url: string, taskNo: string, way: Way): Promise<number> =>
  (await postUntilTaken(() => url, task(taskNo, way))).status

/** Checks the task at the end, by its requests and by its rows. */
export async function judge(
  t: Test,
  { db, sink }: Story,
  url: string,
  taskNo: string,
  moment: Moment
): Promise<void> {
  const { body } = await settled(url, taskNo)
  const ends = moment.ends ?? 'HANDLED'
  t.equal(body?.['status'], ends)
  const deliveries = (body?.['deliveries'] ?? []) as { attempt: number }[]
  const seen = sink.requests.filter(each => each.path === '/faulty')
  // On a busy machine an answer or a receipt may be late: the attempts record that.
  const [late] = await db.sql<[{ n: number }]>`
    select count(*)::int as n from attempt
    where reason in ('timeout', 'connect_timeout') or ${moment.way === 'receipt'} and reason like 'no_receipt%'`
  const most = moment.most + late.n
  t.ok(seen.length >= 1 && seen.length <= most, `${seen.length} requests, at most ${most}`)
  const numbers = seen.map(each => Number(each.headers['ackbox-attempt']))
  t.strictSame(
    numbers,
    numbers.toSorted((a, b) => a - b),
    'attempt numbers rise'
  )
  t.ok(
    numbers.every(each => each <= (deliveries[0]?.attempt ?? 0)),
    'every attempt was claimed before it left'
  )
  t.equal(new Set(seen.map(each => each.headers['webhook-id'])).size, 1, 'duplicates carry the same id')
  const [rows] = await db.sql<{ tasks: number; adrift: number }[]>`
    select (select count(*)::int from task) as tasks,
      (select count(*)::int from delivery where (status = 0) <> (next_action_at is not null)) as adrift`
  t.strictSame({ ...rows }, { tasks: 1, adrift: 0 }, 'one row, whatever was posted how often')
  if (ends !== 'FAILED') return
  await until('the alarm is marked as sent', async () => {
    const [alarm] = await db.sql`select from alarm where kind = 'FAILED' and sent_at is not null`
    return alarm !== undefined
  })
  t.ok(
    sink.requests.some(each => each.path === '/alarm'),
    'the alarm was heard'
  )
}

/** A process without a failpoint, on this port or on a free one. */
export const sound = (t: Test, { env }: Story, port?: string): Promise<Process> =>
  start(t, { ...env, ...(port === undefined ? {} : { PORT: port }) })
