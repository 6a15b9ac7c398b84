// Runs the plan of faults: each action causes its fault, holds it, mends it, and records its times.
import type { Cluster } from './cluster.ts'
import type { Fault } from './history.ts'
import { unless } from './load.ts'
import type { Member } from './member.ts'
import type { Plan, Role, Step } from './nemesis-plan.ts'

export interface Nemesis {
  faults: Fault[]
  /** The actions in progress. */
  doing(): string
  /** Resolves when the steps that run alone and were planned for this time, or before it, have begun: others may have taken longer. */
  reached(atMs: number): Promise<void>
  /** Resolves when the plan is over, or cut short by `stop`, and everything is mended. */
  done: Promise<void>
}

export function startNemesis(cluster: Cluster, plan: Plan, stop: AbortSignal): Nemesis {
  const faults: Fault[] = []
  const now = new Set<string>()
  const began = performance.now()
  const alone = plan.alone.map(({ atMs }) => {
    let begin = (): void => {}
    const begun = new Promise<void>(resolve => (begin = resolve))
    return { atMs, begun, begin }
  })

  /** Runs the steps one after the other, none before its time. */
  async function track(steps: readonly Step[], runs: (step: Step) => Promise<void>): Promise<void> {
    for (const step of steps) {
      await unless(stop, step.atMs - (performance.now() - began))
      if (stop.aborted) return
      await runs(step)
    }
  }

  async function runStep(step: Step): Promise<void> {
    const { target, process, hurt, mend } = actionOf(cluster, step)
    const fault: Fault = {
      action: step.action,
      target,
      ...(process !== undefined && { process }),
      from: Date.now(),
      mendedFrom: Infinity,
      to: Infinity
    }
    faults.push(fault)
    now.add(`${step.action} ${target}`)
    try {
      await hurt()
      await unless(stop, step.holdMs)
    } finally {
      fault.mendedFrom = Date.now()
      await mend()
      fault.to = Date.now()
      now.delete(`${step.action} ${target}`)
    }
  }

  /** A step that runs alone starts after all steps that were planned before it. */
  async function runPlan(): Promise<void> {
    let fromMs = 0
    const ends = plan.alone.length > 0 ? plan.alone : [undefined]
    for (const [at, end] of ends.entries()) {
      const within = (step: Step) => step.atMs >= fromMs && step.atMs < (end?.atMs ?? Infinity)
      await Promise.all([
        track(plan.processes.filter(within), runStep),
        track(plan.servers.filter(within), runStep)
      ])
      if (end) {
        // The effects of earlier faults must not be charged to this step.
        await cluster.ready()
        await track([end], step => {
          alone[at]?.begin()
          return runStep(step)
        })
      }
      fromMs = end?.atMs ?? 0
    }
  }

  const done = runPlan().finally(() => {
    for (const one of alone) one.begin()
  })
  return {
    faults,
    doing: () => [...now].join(', '),
    async reached(atMs) {
      await Promise.all(alone.filter(one => one.atMs <= atMs).map(one => one.begun))
    },
    done
  }
}

interface Doing {
  target: string
  process?: string
  hurt: () => Promise<unknown>
  mend: () => Promise<unknown>
}

const nothing = () => Promise.resolve()

function actionOf(cluster: Cluster, { action, which }: Step): Doing {
  const { members, postgres, redis, witness } = cluster
  const [kind, variant] = action.split('.')
  const pick = (): Member => {
    const member = members.filter(each => each.role === (variant as Role))[which]
    if (!member) throw new Error(`no process for ${action}`)
    return member
  }
  if (kind === 'kill') {
    const member = pick()
    return { target: member.name, process: member.process(), hurt: member.kill, mend: member.start }
  }
  if (kind === 'stop' || kind === 'thaw') {
    const member = pick()
    const [hurt, mend] = [async () => member.freeze(), async () => member.thaw()]
    return { target: member.name, process: member.process(), hurt, mend }
  }
  if (action === 'rolling') {
    // With two versions the deployment ends with it.
    cluster.deploy('new')
    return { target: 'all', hurt: () => roll(cluster), mend: nothing }
  }
  if (kind === 'sink') {
    return {
      target: 'sink',
      hurt: () => witness.setMode(variant as 'fail' | 'hang' | 'reset' | 'late'),
      mend: () => witness.setMode('well')
    }
  }
  if (kind === 'postgres') {
    const target = 'postgres'
    if (variant === 'failover') return { target, hurt: succession(postgres), mend: nothing }
    if (variant === 'backends') return { target, hurt: postgres.terminateBackends, mend: nothing }
    if (variant === 'stop') return { target, hurt: postgres.stopAtOnce, mend: postgres.start }
    return { target, hurt: postgres.swallow, mend: postgres.heal }
  }
  if (!redis) throw new Error(`no Redis for ${action}`)
  const target = 'redis'
  if (variant === 'failover') return { target, hurt: succession(redis), mend: nothing }
  if (variant === 'kill') return { target, hurt: redis.kill, mend: redis.start }
  if (variant === 'flush') return { target, hurt: redis.flush, mend: nothing }
  if (variant === 'snapshot') {
    return {
      target,
      hurt: redis.save,
      async mend() {
        await redis.kill()
        redis.restore()
        await redis.start()
      }
    }
  }
  return { target, hurt: redis.swallow, mend: redis.heal }
}

function succession({ failover }: { failover?: () => Promise<void> }): () => Promise<void> {
  if (!failover) throw new Error('the server has no successor')
  return failover
}

/** All processes run the old build on the new schema, as after a deployment that was taken back. */
export async function rollBack(cluster: Cluster, faults: Fault[]): Promise<void> {
  const fault: Fault = {
    action: 'rolling',
    target: 'all',
    from: Date.now(),
    mendedFrom: Infinity,
    to: Infinity
  }
  faults.push(fault)
  cluster.deploy('old')
  await roll(cluster)
  fault.mendedFrom = fault.to = Date.now()
}

/** As in a deployment: each process gets SIGTERM in turn. The next follows when the last is ready again and the balancer has seen it. */
async function roll({ members, ready }: Cluster): Promise<void> {
  for (const member of members) {
    await member.end()
    await ready()
  }
}
