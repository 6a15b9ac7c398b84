// npm run bench -- recovery: a worker is killed at full load. When does the last of its deliveries arrive?
import { setTimeout as sleep } from 'node:timers/promises'
import postgres, { type PendingQuery, type Row, type Sql } from 'postgres'
import { settings } from '../src/service/settings.ts'
import { now, start, type Child } from './child.ts'
import { onGround, redisOf, until, type Ground } from './ground.ts'
import type { LoadReport } from './load.ts'
import { median } from './median.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import type { SinkReport } from './sink.ts'
import { runAckbox, startAckbox, type Running } from './variants.ts'

const help = `npm run bench -- recovery [options]

One process accepts and dispatches, two work, 256 POSTs are in flight; the downstream takes a realistic 25 ms for an answer.
Then the busier worker is killed with SIGKILL, and 2 s later the load ends. The report is the time from the kill until the
last of its deliveries arrives through the other worker: for the first time, or again if the downstream had received it and
that was not recorded. Progress goes to stderr, the report to stdout as one line of JSON.

  --seconds N       seconds of load before the kill                      (10)
  --mode MODE       redis or postgres: where BullMQ stores jobs          (redis)
  --timeout N       seconds that the downstream may take for an answer   (10)
  --margin N        LEASE_MARGIN_MS                                      (that of Ackbox)
  --rounds N        kills; the median and the longest are reported       (3)
  --quick           a tiny run that shows that it works
  --help

Goal: the longest is at most 4 s, whatever the timeout.`

/** The promise is that another process takes the deliveries back in this time. The last one is sent behind its queue. */
const boundMs = 4_000

interface Amounts {
  seconds: number
  redisUrl: string | undefined
  more: Record<string, string>
  /** The bound that is promised if no process notices the death. */
  atLastMs: number
}

interface Turn {
  /** From the kill to the last arrival of a task that was accepted before it, or to the last duplicate. */
  lastMs: number
  /** Deliveries that any process had claimed at the moment of the kill, including those that wait in the queue. */
  inFlight: number
  /** Deliveries for which another attempt was made. */
  takenOver: number
  tasksPerSecond: number
  lost: number
  duplicates: number
  refused: number
}

export async function main(args: string[]): Promise<void> {
  const values = asked(
    args,
    {
      seconds: text,
      mode: { ...text, default: 'redis' },
      timeout: text,
      margin: text,
      rounds: text,
      quick: flag
    },
    help
  )
  const { quick } = values
  const timeoutMs = whole('--timeout', values.timeout ?? (quick ? '2' : '10')) * 1000
  const { LEASE_MARGIN_MS: usualMarginMs, SWEEP_MS: sweepMs } = settings.parse({})
  const marginMs = whole('--margin', values.margin ?? (quick ? '1500' : `${usualMarginMs}`))
  const seconds = whole('--seconds', values.seconds ?? (quick ? '1' : '10'))
  const rounds = whole('--rounds', values.rounds ?? (quick ? '1' : '3'))
  const mode = choice('--mode', values.mode, ['redis', 'postgres'])
  const atLastMs = timeoutMs + marginMs + sweepMs + 2_000
  const more = { BENCH_TIMEOUT_MS: `${timeoutMs}`, LEASE_MARGIN_MS: `${marginMs}`, SWEEP_MS: `${sweepMs}` }
  await onGround(quick, async (ground, signal) => {
    const redisUrl = redisOf(ground, mode)
    const turns: Turn[] = []
    for (let turn = 1; turn <= rounds; turn++) {
      const one = await kill(ground, { seconds, redisUrl, more, atLastMs }, signal)
      console.error(
        `round ${turn}/${rounds}: ${(one.lastMs / 1000).toFixed(1)} s after the kill (bound ${boundMs / 1000} s), ` +
          `${one.takenOver} taken over, lost ${one.lost}, duplicates ${one.duplicates}`
      )
      turns.push(one)
    }
    report(resultOf(mode, { timeoutMs, marginMs, sweepMs }, turns))
  })
}

function resultOf(mode: string, leases: Record<string, number>, turns: Turn[]) {
  const middle = (key: keyof Turn) => round(median(turns.map(one => one[key])))
  const sum = (key: 'lost' | 'duplicates' | 'refused') => turns.reduce((total, one) => total + one[key], 0)
  const longest = Math.max(...turns.map(({ lastMs }) => lastMs))
  return {
    bench: 'recovery',
    mode,
    lastMs: middle('lastMs'),
    longestMs: round(longest),
    ...leases,
    boundMs,
    // A turn whose worker had no deliveries proves nothing.
    reached: longest <= boundMs && turns.every(({ takenOver }) => takenOver > 0),
    inFlight: middle('inFlight'),
    takenOver: middle('takenOver'),
    tasksPerSecond: middle('tasksPerSecond'),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused'),
    rounds: turns.length
  }
}

const name = 'bench_recovery'
const run = 'kill'
/** More than any machine handles in the time. */
const tasksPerSecond = 30_000
const afterSeconds = 2
const answerMs = 25

async function kill(ground: Ground, amounts: Amounts, signal: AbortSignal): Promise<Turn> {
  const { redisUrl } = amounts
  await ground.emptyRedis()
  const sink = await start('./sink.js', { BENCH_ANSWER_MS: `${answerMs}` })
  const host = `127.0.0.1:${(sink.hello as { port: number }).port}`
  const more = { ...amounts.more, BENCH_SINK: `http://${host}`, EGRESS_ALLOW: host }
  const started: Running[] = []
  const sql = postgres(ground.urlOf(name), { max: 1, connect_timeout: 5 })
  try {
    const api = await startAckbox(ground, name, redisUrl, { ...more, ROLE: 'api,dispatcher' })
    started.push(api)
    for (let n = 0; n < 2; n++)
      started.push(await runAckbox(ground, name, redisUrl, { ...more, ROLE: 'worker' }))
    const workers = started.slice(1).map(({ pids }) => pids['service'] ?? 0)
    return await load({ ground, sink, sql, api, workers }, amounts, signal)
  } finally {
    await Promise.all(started.map(({ stop }) => stop()))
    await sql.end({ timeout: 5 })
    await sink.stop()
  }
}

interface Scene {
  ground: Ground
  sink: Child
  sql: Sql
  api: Running
  workers: number[]
}

async function load(
  { ground, sink, sql, api, workers }: Scene,
  { seconds, atLastMs }: Amounts,
  signal: AbortSignal
): Promise<Turn> {
  const tasks = tasksPerSecond * (seconds + afterSeconds)
  await sink.ask({ kind: 'expect', run, tasks })
  const posting = ground.load.ask({
    target: api.url,
    run,
    tasks,
    seconds: seconds + afterSeconds,
    inFlight: 256
  })
  posting.catch(() => {}) // awaited below
  await sleep(seconds * 1000, undefined, { signal })
  process.kill(await busiest(sql, workers), 'SIGKILL')
  const at = now()
  const inFlight = await countOf(sql, sql`status = 0 and phase = 'IN_FLIGHT'`)
  const { starts, accepts, refused } = (await posting) as LoadReport
  const isOver = async () => {
    signal.throwIfAborted()
    return (await countOf(sql, sql`status = 0`)) === 0
  }
  await until('all of it to end', isOver, atLastMs * 2)
  const { arrivals, duplicates, lastDuplicate } = (await sink.ask({ kind: 'report' })) as SinkReport
  const before = arrivals.filter((_, index) => accepts[index] !== 0 && (accepts[index] ?? 0) < at)
  return {
    lastMs: before.reduce((last, time) => Math.max(last, time), lastDuplicate) - at,
    inFlight,
    takenOver: await countOf(sql, sql`lost > 0`),
    tasksPerSecond: (before.length * 1000) / (at - (starts[0] ?? at)),
    lost: accepts.reduce((sum, time, index) => sum + (time > 0 && arrivals[index] === 0 ? 1 : 0), 0),
    duplicates,
    refused
  }
}

/** The pid with the most attempts in the last second; a node's name contains its pid. */
async function busiest(sql: Sql, pids: number[]): Promise<number> {
  const [row] = await sql<{ node: string }[]>`
    select node from attempt where started_at > now() - interval '1 s' group by node order by count(*) desc limit 1`
  const pid = pids.find(candidate => row?.node.includes(`-${candidate}-`))
  if (pid === undefined) throw new Error('no worker has done anything')
  return pid
}

async function countOf(sql: Sql, which: PendingQuery<Row[]>): Promise<number> {
  const [row] = await sql<{ n: number }[]>`select count(*)::float8 as n from delivery where ${which}`
  return row?.n ?? NaN
}
