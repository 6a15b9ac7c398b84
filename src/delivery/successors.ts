import { dependents, type Dependents, type DependentsDeps } from './dependents.ts'
import { ordering, type Ordering, type OrderingDeps } from './ordering.ts'

/** Lets waiting deliveries start: of tasks that wait for others, and the next ones of orderingKeys. */
export interface Successors extends Dependents {
  promote: Ordering['promote']
}

export function successors(deps: OrderingDeps & Omit<DependentsDeps, 'promote'>): Successors {
  const turns = ordering(deps)
  const waits = dependents({ ...deps, promote: turns.promote })
  return {
    ...waits,
    promote: turns.promote,
    sweep: async () => void (await Promise.all([waits.sweep(), turns.sweep()])),
    idle: () => waits.idle().then(turns.idle)
  }
}
