// One backlog: filled while no service runs, then watched while it drains and new tasks come in.
import { setTimeout as sleep } from 'node:timers/promises'
import postgres, { type Sql } from 'postgres'
import { now } from './child.ts'
import { fillDue, type Filling } from './fill.ts'
import type { Ground } from './ground.ts'
import { fillJobs } from './job.ts'
import type { LoadReport } from './load.ts'
import { acceptMs, arrival, quantile, sorted } from './measure.ts'
import { memoryMb, peakMb } from './memory.ts'
import type { SinkReport } from './sink.ts'
import { emptyAckbox, runAckbox, runTextbook, type Running } from './variants.ts'

/** A service that can have a backlog. The relay cannot: it stores nothing. */
export interface Backlogged {
  /** Its name among the variants. */
  name: string
  database: string
  fill: (ground: Ground, filling: Omit<Filling, 'url'>) => Promise<void>
  start: (ground: Ground) => Promise<Running>
  /** The rows of its tables at the end. */
  count: (sql: Sql) => Promise<Count[]>
}

interface Count {
  rows: number
  handled: number
}

export interface DrainAmounts {
  due: number
  /** The drain is watched at most this long. */
  seconds: number
  /** POSTs a second meanwhile. */
  rate: number
}

export interface Drained {
  /** From the first arrival to the last, or to the end of the time. */
  perSecond: number
  /** Recorded as handled in that time. */
  recordedPerSecond: number
  /** Arrived by the end of that time, but not recorded yet. */
  unrecorded: number
  /** The same for the second half of that time, when everything is warm. */
  secondHalfPerSecond: number
  seconds: number
  /** Deliveries of the backlog that are left, second by second from the first arrival on. */
  curve: [second: number, left: number][]
  /** Ms from POST to answer, without the first seconds: the normal p99 is that of a warm process, too. */
  acceptP99: number
  /** The same for the first seconds. */
  startAcceptP99: number
  redisMb: number
  /** The peak of the service's process; see peakMb. */
  rssMb: number
  /** The peak of PostgreSQL and of Redis; see memoryMb. */
  memoryMb: Record<string, number>
  lost: number
  duplicates: number
  refused: number
}

export const ackbox = (name: string, queue: 'redis' | 'postgres'): Backlogged => ({
  name,
  database: 'bench_backlog',
  async fill(ground, filling) {
    await fillDue({ ...filling, url: await emptyAckbox(ground, 'bench_backlog') })
  },
  start: ground => runAckbox(ground, 'bench_backlog', queue === 'redis' ? ground.redisUrl : undefined),
  count: sql => sql<Count[]>`
    select (select count(*) from task)::float8 as rows,
      (select count(*) from delivery where status = 1)::float8 as handled`
})

export const textbook: Backlogged = {
  name: 'textbook',
  database: 'bench_textbook_backlog',
  async fill(ground, filling) {
    const url = await ground.database('bench_textbook_backlog')
    await fillJobs({ ...filling, url }, ground.redisUrl ?? '')
  },
  start: ground => runTextbook(ground, 'bench_textbook_backlog'),
  count: sql => sql<Count[]>`
    select count(*)::float8 as rows, count(*) filter (where status = 1)::float8 as handled from task`
}

const run = 'due'
const sliceSeconds = 5
const startSeconds = 5

export async function drain(
  ground: Ground,
  what: Backlogged,
  { due, seconds, rate }: DrainAmounts,
  signal: AbortSignal
): Promise<Drained> {
  await ground.emptyRedis()
  await what.fill(ground, { run, count: due, signal })
  // The numbers of the backlog come first, then those of the tasks that are posted meanwhile.
  await ground.sink.ask({ kind: 'expect', run, tasks: due + rate * (seconds + 2 * sliceSeconds) })
  const { watched, posted, recorded } = await work(ground, what, { due, seconds, rate }, signal)
  const { arrivals, duplicates } = (await ground.sink.ask({ kind: 'report' })) as SinkReport
  const accepted = acceptedOf(posted)
  const arrived = arrivals.reduce((sum, at) => sum + (at === 0 ? 0 : 1), 0)
  const { rows, handled } = await count(ground, what)
  const times = arrivals
    .slice(0, due)
    .filter(at => at > 0)
    .sort()
  const [from = 0, to = 0] = [times[0], watched.emptied ? times.at(-1) : watched.endedAt]
  const perSecond = (since: number) => (within(times, since, to) * 1000) / (to - since)
  const acceptP99 = (since: number, until: number) =>
    quantile(sorted(posted.flatMap(slice => acceptMs(slice, since, until))), 0.99)
  const warmFrom = from + startSeconds * 1000
  return {
    perSecond: perSecond(from),
    recordedPerSecond: (recorded * 1000) / (watched.endedAt - from),
    unrecorded: Math.max(0, watched.arrived - recorded),
    secondHalfPerSecond: perSecond((from + to) / 2),
    seconds: (to - from) / 1000,
    curve: curveOf(times, from, to).map(([second, arrived]) => [second, due - arrived]),
    acceptP99: acceptP99(warmFrom < to ? warmFrom : from, to),
    startAcceptP99: acceptP99(0, warmFrom),
    redisMb: watched.redisMb,
    rssMb: watched.rssMb,
    memoryMb: watched.memoryMb,
    // Accepted tasks without a row, and handled deliveries that never arrived.
    lost:
      Math.max(0, due + accepted - rows) +
      Math.max(0, (watched.emptied ? due + accepted : handled) - arrived),
    duplicates,
    refused: posted.reduce((sum, { refused }) => sum + refused, 0)
  }
}

async function work(
  ground: Ground,
  what: Backlogged,
  { due, seconds, rate }: DrainAmounts,
  signal: AbortSignal
): Promise<{ watched: Watched; posted: LoadReport[]; recorded: number }> {
  const running = await what.start(ground)
  try {
    const over = new AbortController()
    const slice = Math.min(sliceSeconds, seconds)
    const posting = post(ground, running, { due, rate, slice, signal: over.signal })
    posting.catch(() => {}) // awaited below
    const watched = await watch(ground, running, { due, seconds, signal }).finally(() => over.abort())
    const { handled: recorded } = await count(ground, what)
    const posted = await posting
    if (watched.emptied) await arrival(ground.sink, due + acceptedOf(posted))
    return { watched, posted, recorded }
  } finally {
    await running.stop()
  }
}

const acceptedOf = (posted: LoadReport[]): number =>
  posted.reduce((sum, { starts, refused }) => sum + starts.length - refused, 0)

/** Posts slice by slice at a steady rate, until `signal` aborts. */
async function post(
  { load }: Ground,
  { url: target }: Running,
  { due, rate, slice, signal }: { due: number; rate: number; slice: number; signal: AbortSignal }
): Promise<LoadReport[]> {
  const slices: LoadReport[] = []
  const tasks = rate * slice
  while (!signal.aborted) {
    const first = due + slices.length * tasks
    slices.push((await load.ask({ target, run, first, tasks, inFlight: 256, rate })) as LoadReport)
  }
  return slices
}

interface Watched {
  emptied: boolean
  arrived: number
  endedAt: number
  redisMb: number
  rssMb: number
  memoryMb: Record<string, number>
}

/** Samples four times a second, until the whole backlog has arrived or the time is over. */
async function watch(
  ground: Ground,
  { pids }: Running,
  { due, seconds, signal }: { due: number; seconds: number; signal: AbortSignal }
): Promise<Watched> {
  const began = performance.now()
  const { service = 0, ...others } = pids
  const highest: Record<string, number> = {}
  let redisMb = 0
  for (let looks = 0; ; looks++) {
    signal.throwIfAborted()
    const arrived = (await ground.sink.ask({ kind: 'count' })) as number
    const elapsed = (performance.now() - began) / 1000
    const emptied = arrived >= due
    const over = emptied || elapsed >= seconds
    if (pids['redis'] !== undefined) redisMb = Math.max(redisMb, await ground.redisMb())
    // Rarely, since it walks all memory pages of PostgreSQL: every second it added 2 ms to the accept p99.
    if (looks % 40 === 0 || over) {
      for (const [what, pid] of Object.entries(others))
        highest[what] = Math.max(highest[what] ?? 0, memoryMb(pid))
    }
    if (looks % 40 === 0) console.error(`  ${elapsed.toFixed(0)} s: ${due - arrived} left`)
    if (over) return { emptied, arrived, endedAt: now(), redisMb, rssMb: peakMb(service), memoryMb: highest }
    await sleep(250)
  }
}

async function count(ground: Ground, what: Backlogged): Promise<Count> {
  const sql = postgres(ground.urlOf(what.database), { max: 1 })
  try {
    const [row] = await what.count(sql)
    return row ?? { rows: 0, handled: 0 }
  } finally {
    await sql.end({ timeout: 5 })
  }
}

const within = (times: Float64Array, from: number, to: number): number =>
  times.reduce((sum, at) => sum + (at >= from && at <= to ? 1 : 0), 0)

/** The number of arrivals, second by second and at the end. */
function curveOf(times: Float64Array, from: number, to: number): [second: number, arrived: number][] {
  const seconds = Math.floor((to - from) / 1000)
  const ends = [...Array.from({ length: seconds + 1 }, (_, second) => from + second * 1000), to]
  let arrived = 0
  return ends.map(end => {
    while ((times[arrived] ?? Infinity) <= end) arrived++
    return [(end - from) / 1000, arrived]
  })
}
