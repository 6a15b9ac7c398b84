// Breaks what is whole, holds it so, and mends it again; each action notes from when to when.
import type { Cluster } from './cluster.ts'
import type { Fault } from './history.ts'
import { unless } from './load.ts'
import type { Member } from './member.ts'
import type { Plan, Role, Step } from './nemesis-plan.ts'

export interface Nemesis {
  faults: Fault[]
  /** What it does just now. */
  doing(): string
  /** Resolves when the plan is over, or cut short by `stop`, and everything is mended. */
  done: Promise<void>
}

export function startNemesis(cluster: Cluster, plan: Plan, stop: AbortSignal): Nemesis {
  const faults: Fault[] = []
  const now = new Set<string>()
  const began = performance.now()

  /** One after the other, each not before its time. */
  async function track(steps: readonly Step[], runs: (step: Step) => Promise<void>): Promise<void> {
    for (const step of steps) {
      await unless(stop, step.atMs - (performance.now() - began))
      if (stop.aborted) return
      await runs(step)
    }
  }

  async function one(step: Step): Promise<void> {
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

  /** What comes alone comes after all that was planned before it. */
  async function all(): Promise<void> {
    let fromMs = 0
    const ends = plan.alone.length > 0 ? plan.alone : [undefined]
    for (const end of ends) {
      const within = (step: Step) => step.atMs >= fromMs && step.atMs < (end?.atMs ?? Infinity)
      await Promise.all([
        track(plan.processes.filter(within), one),
        track(plan.surroundings.filter(within), one)
      ])
      if (end) {
        // What the others left behind must not be charged to it.
        await cluster.ready()
        await track([end], one)
      }
      fromMs = end?.atMs ?? 0
    }
  }

  return { faults, doing: () => [...now].join(', '), done: all() }
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
  const [how, what] = action.split('.')
  const theOne = (): Member => {
    const one = members.filter(member => member.role === (what as Role))[which]
    if (!one) throw new Error(`no process for ${action}`)
    return one
  }
  if (how === 'kill') {
    const one = theOne()
    return { target: one.name, process: one.process(), hurt: one.kill, mend: one.start }
  }
  if (how === 'stop' || how === 'thaw') {
    const one = theOne()
    const [hurt, mend] = [async () => one.freeze(), async () => one.thaw()]
    return { target: one.name, process: one.process(), hurt, mend }
  }
  if (action === 'rolling') return { target: 'all', hurt: () => roll(cluster), mend: nothing }
  if (how === 'sink') {
    return {
      target: 'sink',
      hurt: () => witness.setMode(what as 'fail' | 'hang' | 'reset' | 'late'),
      mend: () => witness.setMode('well')
    }
  }
  if (how === 'postgres') {
    const target = 'postgres'
    if (what === 'failover') return { target, hurt: succession(postgres), mend: nothing }
    if (what === 'backends') return { target, hurt: postgres.terminateBackends, mend: nothing }
    if (what === 'stop') return { target, hurt: postgres.stopAtOnce, mend: postgres.start }
    return { target, hurt: postgres.swallow, mend: postgres.heal }
  }
  if (!redis) throw new Error(`no Redis for ${action}`)
  const target = 'redis'
  if (what === 'failover') return { target, hurt: succession(redis), mend: nothing }
  if (what === 'kill') return { target, hurt: redis.kill, mend: redis.start }
  if (what === 'flush') return { target, hurt: redis.flush, mend: nothing }
  if (what === 'snapshot') {
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
  if (!failover) throw new Error('nobody takes its place')
  return failover
}

/** As a deployment does: SIGTERM to one after the other, the next when the last is ready again and the balancer has seen it. */
async function roll({ members, ready }: Cluster): Promise<void> {
  for (const one of members) {
    await one.end()
    await ready()
  }
}
