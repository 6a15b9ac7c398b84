// The history, sorted so that questions about one delivery, and about the faults around a moment, are quick to answer.
import type {
  Arrival,
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
  arrivals: Arrival[]
  receipts: Receipt[]
  calls: Call[]
  task: SeenTask | undefined
  seen: SeenDelivery | undefined
  alarms: SeenAlarm[]
}

export interface Evidence {
  history: History
  cases: Case[]
  calls: Map<string, Call[]>
  tasks: Map<string, SeenTask>
  /** By the connection they came on. */
  connections: Map<number, Arrival[]>
  /** Faults whose window, widened by `after` ms at its end, overlaps this one. */
  faultsIn(from: number, to: number, isIt: (fault: Fault) => boolean, after?: number): Fault[]
  /** By when something that was to happen at `due` must have happened: the promised time after the last fault. */
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
  const faults = history.faults
    .map(fault => (history.together ? asWorkers(fault) : fault))
    .sort((a, b) => a.from - b.from)
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
        arrivals: (arrivals.get(key) ?? []).toSorted((a, b) => a.at - b.at),
        receipts: receipts.get(key) ?? [],
        calls: made,
        task,
        seen: task?.deliveries.find(one => one.downstream === downstream),
        alarms: alarms.get(key) ?? []
      }
    })
  })
  return {
    history,
    cases,
    calls,
    tasks,
    connections: grouped(history.arrivals, one => one.connection),
    faultsIn: (from, to, isIt, after = 0) =>
      faults.filter(fault => isIt(fault) && fault.from <= to && fault.to + after >= from),
    deadline(due) {
      let by = due + rtoMs
      for (const [from, to] of stops) if (from < by && to > due) by = Math.max(by, to + rtoMs)
      return by
    }
  }
}

/** Where every process has all roles, whoever is killed or stopped was a worker. */
const asWorkers = (fault: Fault): Fault => ({
  ...fault,
  action: fault.action.replace(/\.(api|dispatcher)$/, '.worker')
})

/**
 * When a fault ends, for whoever waits for a delivery: with its sibling still there, the loss of one process is over as soon
 * as it has happened, and a sink that says no at once holds nothing up.
 */
function endsAt({ action, from, to }: Fault): number {
  const isShort = /^(kill|stop|rolling|sink\.fail|sink\.reset)/.test(action)
  return isShort ? from + 1 : to
}

/** Whether the producer ever asked for this, answered or not. */
export const asked = (one: Case, kind: Call['kind']): Call[] => one.calls.filter(call => call.kind === kind)

export const found = (one: Case, charge: Charge, detail: string): Finding => ({
  charge,
  detail,
  taskNo: one.planned.taskNo,
  downstream: one.downstream
})
