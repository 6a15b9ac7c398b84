// Runs the plan of faults: kills processes, keeps databases down, and starts them again.
import type { Fault } from '../history.ts'
import { unless } from '../load.ts'
import type { ProducerAction, ProducerStep } from './plan.ts'
import type { Stand } from './stand.ts'

export interface Faults {
  faults: Fault[]
  doing(): string
  /** Resolves when the plan is over, or cut short by `stop`, and everything is mended. */
  done: Promise<void>
}

export function startFaults(
  stand: Stand,
  plan: { processes: ProducerStep[]; databases: ProducerStep[] },
  stop: AbortSignal
): Faults {
  const faults: Fault[] = []
  const active = new Set<string>()
  const began = performance.now()
  const follow = async (steps: ProducerStep[]): Promise<void> => {
    for (const { atMs, action, holdMs, which } of steps) {
      const waitMs = atMs - (performance.now() - began)
      if (waitMs > 0) await unless(stop, waitMs)
      if (stop.aborted) return
      const { target, hurt, mend } = effectOf(stand, action, which)
      const fault: Fault = { action, target, from: Date.now(), mendedFrom: Infinity, to: Infinity }
      faults.push(fault)
      active.add(action)
      try {
        await hurt()
        await unless(stop, holdMs)
      } finally {
        fault.mendedFrom = Date.now()
        await mend?.()
        fault.to = Date.now()
        active.delete(action)
      }
    }
  }
  return {
    faults,
    doing: () => [...active].join(', '),
    done: Promise.all([follow(plan.processes), follow(plan.databases)]).then(() => {})
  }
}

interface Effect {
  target: string
  hurt: () => Promise<void> | void
  mend?: () => Promise<void>
}

function effectOf(
  { services, relays, producers, ackboxDb, shopDb, mariadb }: Stand,
  action: ProducerAction,
  which: number
): Effect {
  const killed = (from: Stand['services']): Effect => {
    const kept = from[which % from.length]
    if (!kept) throw new Error(`no process for ${action}`)
    return { target: kept.name, hurt: kept.kill }
  }
  switch (action) {
    case 'kill.service':
      return killed(services)
    case 'kill.producer':
      return killed(producers)
    case 'kill.relay.postgres':
      return killed(relays.slice(0, 2))
    case 'kill.relay.mariadb':
      return killed(relays.slice(2))
    case 'postgres.stop':
      return { target: 'postgres', hurt: ackboxDb.stopAtOnce, mend: ackboxDb.start }
    case 'postgres.backends':
      return { target: 'postgres', hurt: ackboxDb.terminateBackends }
    case 'shop.stop':
      return { target: 'shop', hurt: shopDb.stopAtOnce, mend: shopDb.start }
    case 'mariadb.kill':
      return { target: 'mariadb', hurt: () => mariadb.kill(), mend: mariadb.start }
  }
}
