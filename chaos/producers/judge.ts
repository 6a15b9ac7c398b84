// The verdict on producers: each committed task arrived, and each arrival was committed. Pure: it reads only the history.
import { createHash } from 'node:crypto'
import type { Arrival, Exit, Fault, Receipt, SeenTask } from '../history.ts'
import type { Charge, Finding } from '../judge/finding.ts'
import type { Order } from './books.ts'
import { actions, downstreamOf, ways, type Work } from './plan.ts'

export interface ProducerHistory {
  seed: number
  planned: Work[]
  /** Works that were handed to a producer. */
  begun: string[]
  /** The producers' own tables. */
  orders: Order[]
  arrivals: Arrival[]
  receipts: Receipt[]
  /** As the API shows each task that was begun. */
  tasks: SeenTask[]
  /** taskNos of rows that still wait, and of rows that are listed as rejected. */
  waiting: string[]
  rejected: string[]
  faults: Fault[]
  exits: Exit[]
  /** Failpoints at which a process died. */
  points: Record<string, number>
  checks: Record<string, number>
  interrupted: boolean
}

export interface ProducerVerdict {
  verdict: 'green' | 'red' | 'inconclusive'
  seed: number
  inconclusive: string[]
  /** For each way: the number of committed works, and of begun works that were not committed. */
  ways: Record<string, { committed: number; not: number }>
  accepted: number
  dependents: number
  rejected: number
  arrivals: number
  statuses: Record<string, number>
  actions: Record<string, number>
  points: Record<string, number>
  checks: Record<string, number>
  counts: Partial<Record<Charge, number>>
  findings: Finding[]
}

interface Case extends Order {
  isWrong: boolean
  downstream: string
  arrivals: Arrival[]
  task: SeenTask | undefined
}

interface Evidence {
  history: ProducerHistory
  /** One for each committed order, by taskNo. */
  cases: Map<string, Case>
}

const checks: ((evidence: Evidence) => Finding[])[] = [
  lost,
  unexpected,
  corrupted,
  stuck,
  rejected,
  released,
  crashed
]

export function judgeProducers(history: ProducerHistory, fewest: number): ProducerVerdict {
  const evidence = { history, cases: casesOf(history) }
  const findings = checks.flatMap(check => check(evidence))
  const orders = new Set(history.orders.map(({ taskNo }) => taskNo))
  const begun = history.planned.filter(({ taskNo }) => history.begun.includes(taskNo))
  const counted = Object.fromEntries(
    ways.map(way => {
      const all = begun.filter(work => work.way === way)
      const committed = all.filter(({ taskNo }) => orders.has(taskNo)).length
      return [way, { committed, not: all.length - committed }]
    })
  )
  const dependents = history.orders.filter(({ after }) => after.length > 0).length
  const inconclusive = [
    ...(history.interrupted ? ['it was interrupted'] : []),
    ...(orders.size < fewest ? [`${orders.size} committed, fewer than ${fewest}`] : []),
    ...ways
      .filter(way => counted[way]?.committed === 0 || counted[way]?.not === 0)
      .map(way => `too little of ${way}`),
    ...(dependents === 0 ? ['nothing waited for anything'] : []),
    ...actions
      .filter(action => !history.faults.some(fault => fault.action === action))
      .map(action => `${action} never ran`)
  ]
  return {
    // A finding counts in spite of doubts.
    verdict: findings.length > 0 ? 'red' : inconclusive.length > 0 ? 'inconclusive' : 'green',
    seed: history.seed,
    inconclusive,
    ways: counted,
    accepted: orders.size,
    dependents,
    rejected: history.rejected.length,
    arrivals: history.arrivals.length,
    statuses: tally(history.tasks.map(({ status }) => status)),
    actions: tally(history.faults.map(({ action }) => action)),
    points: history.points,
    checks: history.checks,
    counts: tally(findings.map(({ charge }) => charge)),
    findings
  }
}

function casesOf({ planned, orders, arrivals, tasks }: ProducerHistory): Map<string, Case> {
  const wrong = new Set(planned.filter(({ isWrong }) => isWrong).map(({ taskNo }) => taskNo))
  const seen = new Map(tasks.map(task => [task.taskNo, task]))
  const arrived = byTaskNo(arrivals)
  return new Map(
    orders.map(order => [
      order.taskNo,
      {
        ...order,
        isWrong: wrong.has(order.taskNo),
        downstream: downstreamOf[order.messageCode] ?? '',
        arrivals: arrived.get(order.taskNo) ?? [],
        task: seen.get(order.taskNo)
      }
    ])
  )
}

const right = ({ cases }: Evidence): Case[] => [...cases.values()].filter(({ isWrong }) => !isWrong)

function lost(evidence: Evidence): Finding[] {
  return right(evidence)
    .filter(({ arrivals, downstream }) => !arrivals.some(one => one.downstream === downstream))
    .map(({ taskNo, way, downstream, task }) => ({
      charge: 'lost',
      taskNo,
      downstream,
      detail: `committed by way of ${way}; its status in the API is ${task?.status ?? 'unknown'}`
    }))
}

function unexpected({ history, cases }: Evidence): Finding[] {
  const strange = byTaskNo(history.arrivals.filter(({ taskNo }) => cases.get(taskNo)?.isWrong ?? true))
  return [...strange].map(([taskNo, arrivals]) => {
    const work = history.planned.find(one => one.taskNo === taskNo)
    const why = cases.has(taskNo) ? 'it is of no use as a task' : 'its producer never committed it'
    return {
      charge: 'unexpected',
      taskNo,
      downstream: arrivals[0]?.downstream ?? '',
      detail: `${why}${work ? `, by way of ${work.way}` : ''}`
    }
  })
}

function corrupted(evidence: Evidence): Finding[] {
  return right(evidence).flatMap(({ taskNo, body, downstream, arrivals }) => {
    const hash = createHash('sha256').update(body).digest('hex')
    const bad = arrivals.filter(one => one.hash !== hash || !one.signed || one.downstream !== downstream)
    return bad.map(one => ({
      charge: 'corrupted',
      taskNo,
      downstream: one.downstream,
      detail: `attempt ${one.attempt}: ${one.hash === hash ? 'wrong signature or downstream' : 'another body'}`
    }))
  })
}

function stuck(evidence: Evidence): Finding[] {
  const { history, cases } = evidence
  const open = right(evidence).filter(({ task }) => task?.status !== 'HANDLED')
  // A task that was never committed must be CANCELLED, or unknown to the API.
  const half = history.tasks.filter(
    ({ taskNo, status, missing }) => !cases.has(taskNo) && !missing && status !== 'CANCELLED'
  )
  return [
    ...open.map(({ taskNo, way, task }) => ({
      taskNo,
      detail: `committed by way of ${way}; at the end ${task?.status}`
    })),
    ...half.map(({ taskNo, status }) => ({ taskNo, detail: `never committed; at the end ${status}` })),
    ...history.waiting.map(taskNo => ({ taskNo, detail: 'its row is still in an outbox' }))
  ].map(one => ({ charge: 'stuck', ...one }))
}

function rejected(evidence: Evidence): Finding[] {
  const inSight = new Set(evidence.history.rejected)
  const dropped = [...evidence.cases.values()].filter(
    ({ isWrong, taskNo }) => isWrong && !inSight.has(taskNo)
  )
  const refused = [...inSight].filter(taskNo => !(evidence.cases.get(taskNo)?.isWrong ?? false))
  return [
    ...dropped.map(({ taskNo, way }) => ({
      charge: 'dropped' as const,
      taskNo,
      detail: `committed by way of ${way}, and not listed as rejected`
    })),
    ...refused.map(taskNo => ({
      charge: 'refused' as const,
      taskNo,
      detail: 'it stands among the rejected, and is a good task or was never committed'
    }))
  ]
}

/** A difference of clocks below this counts as none. */
const clockMs = 10

/** A task is sent after each of its prerequisites was answered well, had its receipt, and was stored as HANDLED. */
function released({ cases, history }: Evidence): Finding[] {
  const receipts = byTaskNo(history.receipts)
  return [...cases.values()].flatMap(one =>
    one.after.flatMap((taskNo): Finding[] => {
      const before = cases.get(taskNo)
      const [first] = one.arrivals
      if (!first) return []
      const detail = `it came before ${taskNo} was HANDLED`
      const early = { charge: 'released' as const, taskNo: one.taskNo, downstream: first.downstream, detail }
      const well = before && wellAt(before, receipts.get(taskNo) ?? [])
      if (well === undefined || first.at < well) return [early]
      const handledAt = before?.task?.deliveries[0]?.handledAt
      if (handledAt === undefined) return [early]
      // The times come from two clocks of one machine, and the sender's clock was read first.
      return first.builtAt < Date.parse(handledAt) - clockMs ? [early] : []
    })
  )
}

/** When the sink gave the first answer, or sent the first receipt, that could have ended it. */
function wellAt({ arrivals, downstream }: Case, receipts: readonly Receipt[]): number | undefined {
  const times =
    downstream === 'receipted'
      ? [
          ...arrivals.filter(({ handled }) => handled).map(({ at }) => at),
          ...receipts
            .filter(({ result, token }) => result === 'HANDLED' && token === 'good')
            .flatMap(({ tries }) => (tries[0] ? [tries[0].at] : []))
        ]
      : arrivals.filter(({ answer }) => answer.startsWith('2')).map(({ at }) => at)
  return times.length === 0 ? undefined : Math.min(...times)
}

/** The faults of the databases that each process uses. */
const outages: [name: RegExp, action: RegExp][] = [
  [/^service-/, /^postgres\./],
  [/^relay-postgres-/, /^shop\.stop$/],
  [/^relay-mariadb-/, /^mariadb\.kill$/],
  [/^producer-/, /^(postgres\..+|shop\.stop|mariadb\.kill)$/]
]

/** SIGKILL comes from the run or from a failpoint, and is no finding. An outage of its database excuses an end before it was ready. */
function crashed({ history }: Evidence): Finding[] {
  const wasAway = ({ name, launchedAt, at }: Exit): boolean =>
    history.faults.some(
      ({ action, from, to }) =>
        from <= at &&
        to >= launchedAt &&
        outages.some(([process, outage]) => process.test(name) && outage.test(action))
    )
  return history.exits
    .filter(({ signal, code, by }) => (by === 'term' ? code !== 0 : signal !== 'SIGKILL'))
    .filter(exit => !(exit.starting && wasAway(exit)))
    .map(({ name, code, signal, by, logTail }) => ({
      charge: 'crashed',
      detail: `${name} ended with ${signal ?? code}${by === 'term' ? ' at SIGTERM' : ''}: ${logTail ?? ''}`
    }))
}

function byTaskNo<One extends { taskNo: string }>(all: readonly One[]): Map<string, One[]> {
  const groups = new Map<string, One[]>()
  for (const one of all) groups.set(one.taskNo, [...(groups.get(one.taskNo) ?? []), one])
  return groups
}

function tally<Name extends string>(names: readonly Name[]): Record<Name, number> {
  const counts = {} as Record<Name, number>
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
