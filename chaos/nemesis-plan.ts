// The plan of faults, derived from the seed. Two tracks run in parallel: the faults of processes, and all other faults.
import { chance, type Chance } from './random.ts'
import { leaseMs } from './terms.ts'

export type Queue = 'redis' | 'postgres'
export const roles = ['api', 'worker', 'dispatcher'] as const
export type Role = (typeof roles)[number]

export const processActions = [
  'kill.api',
  'kill.worker',
  'kill.dispatcher',
  'stop.api',
  'stop.worker',
  'stop.dispatcher'
] as const
export const redisActions = ['redis.kill', 'redis.flush', 'redis.blackhole', 'redis.snapshot'] as const
export const postgresActions = ['postgres.backends', 'postgres.stop', 'postgres.blackhole'] as const
export const sinkActions = ['sink.fail', 'sink.hang', 'sink.reset', 'sink.late'] as const
/** A process is stopped for far longer than its lease, and then continues. */
export const thawActions = ['thaw.api', 'thaw.worker', 'thaw.dispatcher'] as const
/** A server dies for good, and its successor takes over. Runs alone, once in a run. */
export const failoverActions = ['postgres.failover', 'redis.failover'] as const
export type Action =
  | (typeof processActions)[number]
  | (typeof thawActions)[number]
  | (typeof failoverActions)[number]
  | (typeof redisActions)[number]
  | (typeof postgresActions)[number]
  | (typeof sinkActions)[number]
  | 'rolling'

/** The actions of each `--fault`: its own, and faults of processes and of the sink. */
export const faults = {
  thaw: [...processActions.slice(0, 3), ...thawActions, ...sinkActions],
  failover: [...processActions, ...sinkActions, 'postgres.failover', 'rolling'],
  sentinel: [...processActions, ...sinkActions, 'redis.failover', 'rolling']
} as const satisfies Record<string, readonly Action[]>
export type FaultName = keyof typeof faults
export const faultNames = Object.keys(faults) as FaultName[]

export interface Step {
  atMs: number
  action: Action
  /** How long the fault lasts before it is mended. */
  holdMs: number
  /** Which of the two processes of a role. */
  which: number
}

export interface Plan {
  processes: Step[]
  servers: Step[]
  /** Run alone, after the other steps: no POST may fail in a rolling restart, so no other fault may be the cause. */
  alone: Step[]
}

/** The approximate recovery time after `holdMs`: a process starts, or PostgreSQL reads its log. */
const mendMs = 2_000
/** The approximate length of a rolling restart. */
const rollingMs = 22_000
/** Load without other faults, while the service finds the successor. */
const failoverMs = 5_000
const thawMs = 10_000

/** `stopMs`: how long PostgreSQL is down. `only`: the plan repeats these actions until the load is over. */
export function planNemesis(
  seed: number,
  {
    seconds,
    queue,
    stopMs,
    only
  }: { seconds: number; queue: Queue; stopMs: number; only?: readonly Action[] }
): Plan {
  const by = chance(seed, 'nemesis')
  const isWanted = (action: Action) => !only || only.includes(action)
  const wanted = {
    processes: [...processActions.filter(isWanted), ...thawActions.filter(action => only?.includes(action))],
    servers: [...(queue === 'redis' ? redisActions : []), ...postgresActions, ...sinkActions].filter(
      isWanted
    ),
    failovers: failoverActions.filter(action => only?.includes(action)),
    rolling: isWanted('rolling')
  }
  const plan: Plan = { processes: [], servers: [], alone: [] }
  const endMs = seconds * 1_000
  // A cycle has each action once, in its own order. A short run has one cycle, a long run as many as fit.
  let atMs = 2_000
  let tookMs = 0
  do {
    const fromMs = atMs
    const processes = cycle(by, wanted.processes, atMs, stopMs)
    const servers = cycle(by, wanted.servers, atMs, stopMs)
    plan.processes.push(...processes.steps)
    plan.servers.push(...servers.steps)
    atMs = Math.max(processes.endMs, servers.endMs)
    for (const action of wanted.failovers.splice(0)) {
      plan.alone.push({ atMs, action, holdMs: failoverMs, which: 0 })
      atMs += failoverMs + mendMs
    }
    if (wanted.rolling) {
      plan.alone.push({ atMs, action: 'rolling', holdMs: 0, which: 0 })
      atMs += rollingMs
    }
    atMs += by.whole(500, 8_000)
    tookMs = atMs - fromMs
  } while (atMs + tookMs < endMs)
  return plan
}

function cycle(
  by: Chance,
  actions: Action[],
  fromMs: number,
  stopMs: number
): { steps: Step[]; endMs: number } {
  let atMs = fromMs
  const steps = by.shuffled(actions).map((action): Step => {
    atMs += by.whole(0, 800)
    const step = { atMs, action, holdMs: holdOf(by, action, stopMs), which: by.whole(0, 1) }
    atMs += step.holdMs + mendMs
    return step
  })
  return { steps, endMs: atMs }
}

function holdOf(by: Chance, action: Action, stopMs: number): number {
  if (action.startsWith('thaw.')) return thawMs
  if (action.startsWith('stop.')) return leaseMs + by.whole(1_000, 2_500)
  if (action.startsWith('kill.')) return by.whole(200, 1_000)
  if (action === 'postgres.stop') return stopMs
  if (action === 'redis.snapshot') return by.whole(1_500, 3_000)
  const isOverAtOnce = action === 'redis.flush' || action === 'postgres.backends'
  return isOverAtOnce ? 0 : by.whole(2_000, 4_000)
}

/** Each action that has to run at least once. */
export const actionsOf = (plan: Plan): Action[] => [
  ...new Set([...plan.processes, ...plan.servers, ...plan.alone].map(step => step.action))
]
