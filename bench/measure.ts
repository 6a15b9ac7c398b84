// One turn of a variant: warm-up, full load, then a modest steady rate.
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMs } from './cpu.ts'
import type { Child } from './child.ts'
import type { Ground } from './ground.ts'
import type { LoadQuestion, LoadReport } from './load.ts'
import { peakMb } from './memory.ts'
import type { SinkQuestion, SinkReport } from './sink.ts'
import { ownPids, type Running, type Variant } from './variants.ts'

export interface Amounts {
  tasks: number
  /** Tasks before them, to warm up: the costs of a service that has just started are not its usual costs. */
  warm: number
  inFlight: number
  rate: number
  rateSeconds: number
  /** The wait after the last arrival, for rows that are still to be written and for duplicates. */
  settleMs: number
}

/** The result of full load: tasks are posted as fast as answers come. */
export interface Full {
  tasksPerSecond: number
  /** Never arrived, although the POST was answered 2xx. `duplicates`: arrived again. */
  lost: number
  duplicates: number
  refused: number
  /** For the service, PostgreSQL and Redis: each with all its processes. */
  cpuMsPerTask: Record<string, number>
  statementsPerTask: number | undefined
  commitsPerTask: number | undefined
  /** Including full page images, as after a checkpoint. */
  walBytesPerTask: number | undefined
  /** Reads of Redis from its clients; see ground.ts. */
  redisCallsPerTask: number | undefined
  /** The peak of each process of the service so far; see peakMb. */
  rssMb: Record<string, number>
}

/** Its counts (lost, duplicates, refused) are of all runs of the turn. */
export interface Measured extends Full {
  /** Ms from the POST to the arrival, at the steady rate. */
  p50: number
  p99: number
  /** Ms from the POST to its answer, at the steady rate. */
  acceptP99: number
}

/** The members that are a single number. */
export type Figure = Exclude<keyof Measured, 'cpuMsPerTask' | 'rssMb'>

type LoadTimes = Pick<LoadReport, 'starts' | 'accepts'>

/** If nothing arrives for this long, the rest counts as lost. */
const patienceMs = 15_000
let runs = 0

export async function measure(variant: Variant, ground: Ground, amounts: Amounts): Promise<Measured> {
  await ground.emptyRedis()
  const running = await variant.start(ground)
  try {
    const { inFlight, rate, rateSeconds, settleMs } = amounts
    const full = await fullLoad(running, ground, amounts)
    const steady = await send(ground, {
      target: running.url,
      tasks: rate * rateSeconds,
      inFlight,
      rate,
      settleMs
    })
    const waits = sorted(steady.waits)
    return {
      ...full,
      lost: full.lost + steady.lost,
      duplicates: full.duplicates + steady.duplicates,
      refused: full.refused + steady.refused,
      rssMb: rssMb(running),
      p50: quantile(waits, 0.5),
      p99: quantile(waits, 0.99),
      acceptP99: quantile(sorted(acceptMs(steady)), 0.99)
    }
  } finally {
    await running.stop()
  }
}

/** Warms the service up, then measures full load. The costs are those of the full load only. */
export async function fullLoad(
  running: Running,
  ground: Ground,
  { tasks, warm: warmingUp, inFlight, settleMs }: Pick<Amounts, 'tasks' | 'warm' | 'inFlight' | 'settleMs'>,
  way: Way = {}
): Promise<Full> {
  const load = { target: running.url, inFlight, settleMs, ...way }
  const warm = await send(ground, { ...load, tasks: warmingUp })
  // Some refused tasks fail the report at the end. A service that refuses all is not measured.
  if (warm.lost > 0 || warm.refused === warmingUp) {
    throw new Error(`warming up, ${warm.lost} tasks were lost and ${warm.refused} refused: it does not work`)
  }
  const books = async () => ({
    cpu: Object.fromEntries(Object.entries(running.pids).map(([what, pid]) => [what, cpuMs([pid])])),
    sql: running.database === undefined ? undefined : await ground.statements(running.database),
    reads: running.pids['redis'] === undefined ? undefined : await ground.redisReads()
  })
  const before = await books()
  const { tasksPerSecond, lost, duplicates, refused } = await send(ground, { ...load, tasks })
  const after = await books()
  const perTask = (then: number | undefined, now: number | undefined) =>
    then === undefined || now === undefined ? undefined : (now - then) / tasks
  return {
    tasksPerSecond,
    lost,
    duplicates,
    refused: warm.refused + refused,
    cpuMsPerTask: Object.fromEntries(
      Object.entries(after.cpu).map(([what, ms]) => [what, (ms - (before.cpu[what] ?? 0)) / tasks])
    ),
    statementsPerTask: perTask(before.sql?.statements, after.sql?.statements),
    commitsPerTask: perTask(before.sql?.commits, after.sql?.commits),
    walBytesPerTask: perTask(before.sql?.walBytes, after.sql?.walBytes),
    redisCallsPerTask: perTask(before.reads, after.reads),
    rssMb: rssMb(running)
  }
}

const rssMb = (running: Running): Record<string, number> =>
  Object.fromEntries(Object.entries(ownPids(running)).map(([what, pid]) => [what, peakMb(pid)]))

/** How tasks are posted and delivered. By default one task a POST, to one downstream without a receipt. */
export interface Way {
  /** Downstreams of each task. */
  each?: number
  /** Tasks per POST. */
  batch?: number
  /** True: a task counts as arrived when its receipt was accepted. */
  receipts?: boolean
  /** The number of ordering keys, used in turn. */
  keys?: number
}

export async function send(
  { sink, load }: Ground,
  {
    settleMs,
    each = 1,
    receipts = false,
    ...question
  }: Omit<LoadQuestion, 'run'> & Way & Pick<Amounts, 'settleMs'>
) {
  const run = `r${++runs}`
  const { tasks } = question
  await sink.ask({ kind: 'expect', run, tasks, each, receipts } satisfies SinkQuestion)
  const { starts, accepts, refused } = (await load.ask({ ...question, run })) as LoadReport
  const due = (tasks - refused) * each
  await arrival(sink, due)
  await sleep(settleMs)
  const { arrivals, duplicates } = (await sink.ask({ kind: 'report' })) as SinkReport
  const waits = [...arrivals].flatMap((at, index) =>
    at === 0 ? [] : [at - (starts[Math.floor(index / each)] ?? at)]
  )
  const lost = Math.max(0, due - waits.length)
  const seconds = (arrivals.reduce((last, at) => Math.max(last, at), 0) - (starts[0] ?? 0)) / 1000
  const tasksPerSecond = waits.length / each / seconds
  return { tasksPerSecond, lost, duplicates, refused, waits, starts, accepts }
}

/** Resolves when `due` tasks have arrived, or nothing arrives for `patienceMs`. */
export async function arrival(sink: Child, due: number): Promise<void> {
  let arrived = 0
  for (let since = Date.now(); arrived < due && Date.now() - since < patienceMs; await sleep(20)) {
    const count = (await sink.ask({ kind: 'count' })) as number
    if (count > arrived) since = Date.now()
    arrived = count
  }
}

/** Ms from POST to answer, for tasks that were posted in this time and answered 2xx. */
export const acceptMs = ({ starts, accepts }: LoadTimes, from = 0, to = Infinity): number[] =>
  [...accepts].flatMap((at, index) => {
    const start = starts[index] ?? 0
    return at === 0 || start < from || start > to ? [] : [at - start]
  })

export const sorted = (values: number[]): number[] => values.sort((a, b) => a - b)

export function quantile(values: number[], q: number): number {
  return values[Math.min(values.length - 1, Math.floor(values.length * q))] ?? NaN
}
