// One variant's turn: warm up, as fast as it can, then at a modest steady rate.
import { setTimeout as sleep } from 'node:timers/promises'
import { cpuMs } from './cpu.ts'
import type { Child } from './child.ts'
import type { Ground } from './ground.ts'
import type { LoadQuestion, LoadReport } from './load.ts'
import type { SinkQuestion, SinkReport } from './sink.ts'
import type { Variant } from './variants.ts'

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

export interface Measured {
  tasksPerSecond: number
  /** Of all runs of the turn: never arrived though the POST was answered 2xx, or came again. */
  lost: number
  duplicates: number
  refused: number
  /** Ms from the POST to the arrival, at the steady rate. */
  p50: number
  p99: number
  /** Ms from the POST to its answer, at the steady rate. */
  acceptP99: number
  /** Of its own process, and of what it stands on: all their processes together. */
  cpuMsPerTask: Record<string, number>
  statementsPerTask: number | undefined
  commitsPerTask: number | undefined
}

type LoadTimes = Pick<LoadReport, 'starts' | 'accepts'>

/** When nothing has arrived for so long, the rest is lost. */
const patienceMs = 15_000
let runs = 0

export async function measure(variant: Variant, ground: Ground, amounts: Amounts): Promise<Measured> {
  await ground.emptyRedis()
  const running = await variant.start(ground)
  try {
    const { tasks, warm: warmingUp, inFlight, rate, rateSeconds, settleMs } = amounts
    const warm = await send(ground, { target: running.url, tasks: warmingUp, inFlight, settleMs })
    if (warm.lost > 0 || warm.refused > 0) {
      throw new Error(
        `${variant.name} does not work: warming up, ${warm.lost} tasks were lost and ${warm.refused} refused`
      )
    }

    const counted = async () =>
      running.database === undefined ? undefined : await ground.statements(running.database)
    const before = { cpu: cpuOf(running.pids), sql: await counted() }
    const fast = await send(ground, { target: running.url, tasks, inFlight, settleMs })
    const after = { cpu: cpuOf(running.pids), sql: await counted() }
    const perTask = (key: 'statements' | 'commits') =>
      after.sql && before.sql && (after.sql[key] - before.sql[key]) / tasks

    const steady = await send(ground, {
      target: running.url,
      tasks: rate * rateSeconds,
      inFlight,
      rate,
      settleMs
    })
    const waits = sorted(steady.waits)
    return {
      tasksPerSecond: fast.tasksPerSecond,
      lost: fast.lost + steady.lost,
      duplicates: fast.duplicates + steady.duplicates,
      refused: fast.refused + steady.refused,
      p50: quantile(waits, 0.5),
      p99: quantile(waits, 0.99),
      acceptP99: quantile(sorted(acceptMs(steady)), 0.99),
      cpuMsPerTask: Object.fromEntries(
        Object.entries(after.cpu).map(([what, ms]) => [what, (ms - (before.cpu[what] ?? 0)) / tasks])
      ),
      statementsPerTask: perTask('statements'),
      commitsPerTask: perTask('commits')
    }
  } finally {
    await running.stop()
  }
}

async function send(
  { sink, load }: Ground,
  { settleMs, ...question }: Omit<LoadQuestion, 'run'> & Pick<Amounts, 'settleMs'>
) {
  const run = `r${++runs}`
  const { tasks } = question
  await sink.ask({ kind: 'expect', run, tasks } satisfies SinkQuestion)
  const { starts, accepts, refused } = (await load.ask({ ...question, run })) as LoadReport
  await arrival(sink, tasks - refused)
  await sleep(settleMs)
  const { arrivals, duplicates } = (await sink.ask({ kind: 'report' })) as SinkReport
  const waits = [...arrivals].flatMap((at, index) => (at === 0 ? [] : [at - (starts[index] ?? at)]))
  const lost = Math.max(0, tasks - refused - waits.length)
  const seconds = (arrivals.reduce((last, at) => Math.max(last, at), 0) - (starts[0] ?? 0)) / 1000
  return { tasksPerSecond: waits.length / seconds, lost, duplicates, refused, waits, starts, accepts }
}

/** Resolves when so many have arrived, or none for so long that the rest is lost. */
export async function arrival(sink: Child, tasks: number): Promise<void> {
  let arrived = 0
  for (let since = Date.now(); arrived < tasks && Date.now() - since < patienceMs; await sleep(20)) {
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

const cpuOf = (pids: Record<string, number>): Record<string, number> =>
  Object.fromEntries(Object.entries(pids).map(([what, pid]) => [what, cpuMs([pid])]))

export const sorted = (values: number[]): number[] => values.sort((a, b) => a - b)

export function quantile(values: number[], q: number): number {
  return values[Math.min(values.length - 1, Math.floor(values.length * q))] ?? NaN
}
