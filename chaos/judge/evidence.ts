// The history, indexed so that the data of one delivery, and the faults around a moment, are found quickly.
import type {
  Arrival,
  CpuSample,
  Call,
  Fault,
  History,
  PlannedTask,
  Receipt,
  SeenAlarm,
  SeenDelivery,
  SeenTask
} from '../history.ts'
import type { Charge, Finding } from './finding.ts'
import { downstreamsOf, isOwed, rtoMs } from '../terms.ts'

/** Everything about one delivery: a task on its way to one downstream. */
export interface Case {
  planned: PlannedTask
  downstream: string
  owed: boolean
  /** When the producer had its first 2xx; undefined: never. */
  okAt: number | undefined
  /** In the order in which they were built. The sink may read them in another order. */
  arrivals: Arrival[]
  receipts: Receipt[]
  calls: Call[]
  task: SeenTask | undefined
  seen: SeenDelivery | undefined
  alarms: SeenAlarm[]
  /** The delivery in front of it, with the same orderingKey. */
  before?: Case
}

export interface Evidence {
  history: History
  cases: Case[]
  calls: Map<string, Call[]>
  tasks: Map<string, SeenTask>
  /** By the connection they came on. */
  connections: Map<number, Arrival[]>
  /** The kill that ended this process. */
  killOf(process: string): Fault | undefined
  /** The stop that held this process at some moment from `from` to `to`. */
  heldIn(process: string, from: number, to: number): Fault | undefined
  /** The machine worked for at least half of this time. */
  hasWorked(from: number, to: number): boolean
  /** Faults whose window, widened at its end by `after` ms in which the machine worked, overlaps this one. */
  faultsIn(from: number, to: number, matches: (fault: Fault) => boolean, after?: number): Fault[]
  /**
   * The latest time for an event that is due at `due`: the promised time after the last fault. Only time in which the machine
   * worked counts.
   */
  deadline(due: number): number
}

function grouped<T, Key>(items: readonly T[], keyOf: (item: T) => Key): Map<Key, T[]> {
  const groups = new Map<Key, T[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group) group.push(item)
    else groups.set(keyOf(item), [item])
  }
  return groups
}

export const isOk = (status: number): boolean => status >= 200 && status < 300

export function evidenceOf(history: History): Evidence {
  const of = (one: { taskNo: string; downstream: string }) => `${one.taskNo} ${one.downstream}`
  const arrivals = grouped(history.arrivals, of)
  const receipts = grouped(history.receipts, of)
  const alarms = grouped(history.alarms, of)
  const calls = grouped(history.calls, call => call.taskNo)
  const tasks = new Map(history.tasks.map(task => [task.taskNo, task]))
  const faults = history.faults.toSorted((a, b) => a.from - b.from)
  const byProcess = grouped(faults, fault => fault.process ?? '')
  const worked = workedOf(history.cpuSamples)
  const stops = faults.map(fault => [fault.from, endsAt(fault)] as const)
  const cases = history.planned.flatMap(planned => {
    if (planned.isWrong) return []
    const made = calls.get(planned.taskNo) ?? []
    const okAts = made
      .filter(call => call.kind === 'first' || call.kind === 'again')
      .flatMap(call => call.tries.filter(one => isOk(one.status)).map(one => one.at + one.ms))
    const task = tasks.get(planned.taskNo)
    return (downstreamsOf[planned.messageCode] ?? []).map((downstream): Case => {
      const key = `${planned.taskNo} ${downstream}`
      return {
        planned,
        downstream,
        owed: isOwed(downstream, planned.needCallback),
        okAt: okAts.length > 0 ? Math.min(...okAts) : undefined,
        arrivals: (arrivals.get(key) ?? []).toSorted((a, b) => a.builtAt - b.builtAt),
        receipts: receipts.get(key) ?? [],
        calls: made,
        task,
        seen: task?.deliveries.find(one => one.downstream === downstream),
        alarms: alarms.get(key) ?? []
      }
    })
  })
  placeInOrder(cases)
  return {
    history,
    cases,
    calls,
    tasks,
    connections: grouped(history.arrivals, one => one.connection),
    killOf: process => byProcess.get(process)?.find(fault => fault.action.startsWith('kill.')),
    heldIn: (process, from, to) =>
      byProcess
        .get(process)
        ?.find(fault => /^(stop|thaw)\./.test(fault.action) && fault.from <= to && fault.mendedFrom >= from),
    hasWorked: (from, to) => to <= from || worked(from, (to - from) / 2) <= to,
    faultsIn: (from, to, matches, after = 0) =>
      faults.filter(
        fault =>
          matches(fault) && fault.from <= to && (after === 0 ? fault.to : worked(fault.to, after)) >= from
      ),
    deadline(due) {
      let by = worked(due, rtoMs)
      for (const [from, to] of stops) if (from < by && to > due) by = Math.max(by, worked(to, rtoMs))
      return by
    }
  }
}

/** Sets `before` for each downstream and orderingKey, by the positions that the API shows. */
function placeInOrder(cases: readonly Case[]): void {
  const keyed = cases.filter(one => one.planned.orderingKey !== undefined && one.seen?.position !== undefined)
  for (const row of grouped(keyed, one => `${one.downstream} ${one.planned.orderingKey}`).values()) {
    const sorted = row.toSorted((a, b) => (a.seen?.position ?? 0) - (b.seen?.position ?? 0))
    for (const [at, one] of sorted.entries()) {
      const before = sorted[at - 1]
      if (before) one.before = before
    }
  }
}

/** When the machine has worked for `ms` since `from`. The time to a sample that had a processor for half of its duration counts half. */
function workedOf(samples: readonly CpuSample[]): (from: number, ms: number) => number {
  return (from, ms) => {
    let left = ms
    let at = from
    for (const sample of samples.slice(after(samples, from))) {
      const share = Math.min(1, sample.workedMs / sample.ms)
      const counted = (sample.at - at) * share
      if (counted >= left) return at + left / share
      left -= counted
      at = sample.at
    }
    return at + left
  }
}

/** The index of the first sample after this moment. */
function after(samples: readonly CpuSample[], moment: number): number {
  let [low, high] = [0, samples.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((samples[middle]?.at ?? 0) > moment) high = middle
    else low = middle + 1
  }
  return low
}

/**
 * When a fault stops delaying deliveries. The loss of one process delays none, because its sibling is still there. A sink that
 * refuses at once delays none either.
 */
function endsAt({ action, from, to }: Fault): number {
  const isShort = /^(kill|stop|thaw|rolling|sink\.fail|sink\.reset)/.test(action)
  return isShort ? from + 1 : to
}

/** A process learns that it was declared dead within this time after it was silenced. */
const silencedMs = 8_000

/**
 * Why a living process that logged at `at` that it had been declared dead could not beat: it was held, or PostgreSQL or the machine did
 * not work. False: it was declared dead without a cause.
 */
export function wasSilenced(
  { faultsIn, hasWorked }: Evidence,
  { process, at }: History['calledDead'][number]
): boolean {
  const isCause = (fault: Fault): boolean =>
    fault.action.startsWith('postgres.') ||
    (/^(stop|thaw)\./.test(fault.action) && fault.process?.startsWith(`${process}#`) === true)
  const isStarved = [0, 2_000, 4_000].some(ms => !hasWorked(at - ms - 4_000, at - ms))
  return isStarved || faultsIn(at - silencedMs, at, isCause).length > 0
}

/** The calls of this kind that the producer made, answered or not. */
export const callsOf = (one: Case, kind: Call['kind']): Call[] => one.calls.filter(call => call.kind === kind)

export const findingOf = (one: Case, charge: Charge, detail: string): Finding => ({
  charge,
  detail,
  taskNo: one.planned.taskNo,
  downstream: one.downstream
})
