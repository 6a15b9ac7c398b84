// One variant's turn: warm up, as fast as it can, then at a modest steady rate.
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
  /** Before them, counted for nothing: what a service costs that has just started is not what it costs. */
  warm: number
  inFlight: number
  rate: number
  rateSeconds: number
  /** After the last arrival: what is still written down, or comes twice, comes within this. */
  settleMs: number
}

/** What one does as fast as answers come. */
export interface Full {
  tasksPerSecond: number
  /** Never arrived though the POST was answered 2xx, or came again. */
  lost: number
  duplicates: number
  refused: number
  /** Of its own process, and of what it stands on: all their processes together. */
  cpuMsPerTask: Record<string, number>
  statementsPerTask: number | undefined
  commitsPerTask: number | undefined
  /** Whole pages included, as after a checkpoint. */
  walBytesPerTask: number | undefined
  /** Reads of Redis from its clients; see ground.ts. */
  redisCallsPerTask: number | undefined
  /** Of each process of its own, at its highest so far; see peakMb. */
  rssMb: Record<string, number>
}

/** The counts are of all runs of the turn. */
export interface Measured extends Full {
  /** Ms from the POST to the arrival, at the steady rate. */
  p50: number
  p99: number
  /** Ms from the POST to its answer, at the steady rate. */
  acceptP99: number
}

/** Those that are one number. */
export type Figure = Exclude<keyof Measured, 'cpuMsPerTask' | 'rssMb'>

type LoadTimes = Pick<LoadReport, 'starts' | 'accepts'>

/** When nothing has arrived for so long, the rest is lost. */
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

/** Warms it up, then as fast as it can; what both cost, of the second only. */
export async function fullLoad(
  running: Running,
  ground: Ground,
  { tasks, warm: warmingUp, inFlight, settleMs }: Pick<Amounts, 'tasks' | 'warm' | 'inFlight' | 'settleMs'>,
  way: Way = {}
): Promise<Full> {
  const load = { target: running.url, inFlight, settleMs, ...way }
  const warm = await send(ground, { ...load, tasks: warmingUp })
  if (warm.lost > 0 || warm.refused > 0) {
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
    refused,
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

/** How tasks come and go, where it is not one by one, each to one downstream that owes nothing. */
export interface Way {
  /** Downstreams of each task. */
  each?: number
  /** Tasks of a POST. */
  batch?: number
  /** A task has arrived when its receipt was taken. */
  receipts?: boolean
  /** Ordering keys, in turn. */
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

/** Resolves when so many have arrived, or none for so long that the rest is lost. */
export async function arrival(sink: Child, due: number): Promise<void> {
  let arrived = 0
  for (let since = Date.now(); arrived < due && Date.now() - since < patienceMs; await sleep(20)) {
    const count = (await sink.ask({ kind: 'count' })) as number
    if (count > arrived) since = Date.now()
    arrived = count
  }
}

/** Ms from POST to answer of those that were answered 2xx, as far as they were posted in this time. */
export const acceptMs = ({ starts, accepts }: LoadTimes, from = 0, to = Infinity): number[] =>
  [...accepts].flatMap((at, index) => {
    const start = starts[index] ?? 0
    return at === 0 || start < from || start > to ? [] : [at - start]
  })

export const sorted = (values: number[]): number[] => values.sort((a, b) => a - b)

export function quantile(values: number[], q: number): number {
  return values[Math.min(values.length - 1, Math.floor(values.length * q))] ?? NaN
}
