// Order by orderingKey: each delivery starts after the end of the one before it, in the order of acceptance.
import { findingOf, isOk, type Case, type Evidence } from './evidence.ts'
import type { Finding } from './finding.ts'

/** Ms: `now()` is the beginning of a statement, and a clock is read to a millisecond. */
const toleranceMs = 10

/**
 * Each delivery is first sent after the one in front of it was HANDLED. So good answers, and the ends, come in the order of positions.
 * The receiver gets the position in ackbox-sequence, so that it can check the order.
 */
export function overtaken({ history, cases }: Evidence): Finding[] {
  return cases.flatMap(one => {
    const { before, arrivals, seen } = one
    const misnumbered = arrivals.find(arrival => arrival.sequence !== seen?.position)
    if (seen?.position !== undefined && misnumbered)
      return [
        findingOf(
          one,
          'overtaken',
          `ackbox-sequence was ${misnumbered.sequence}, and its position is ${seen.position}`
        )
      ]
    const [first] = arrivals
    if (!before || !first) return []
    const handledAt = before.seen?.handledAt
    if (handledAt === undefined)
      return [
        findingOf(one, 'overtaken', `sent, and ${before.planned.taskNo} in front of it was never HANDLED`)
      ]
    const endedAt = Date.parse(handledAt) - history.clockAheadMs
    if (first.builtAt + toleranceMs >= endedAt) return []
    const early = Math.round(endedAt - first.builtAt)
    return [
      findingOf(
        one,
        'overtaken',
        `sent ${early} ms before ${before.planned.taskNo} in front of it was HANDLED`
      )
    ]
  })
}

/** A task that was answered before another was posted stands before it. Each that was accepted has a place. */
export function misplaced({ cases }: Evidence): Finding[] {
  const unplaced = cases.filter(
    ({ planned, okAt, task, seen }) =>
      planned.orderingKey !== undefined &&
      okAt !== undefined &&
      task !== undefined &&
      !task.missing &&
      seen?.position === undefined
  )
  return [...unplaced.map(one => findingOf(one, 'misplaced', 'it has no position')), ...inverted(cases)]
}

function inverted(cases: readonly Case[]): Finding[] {
  return [...groups(cases).values()].flatMap(row => {
    // From the last position: no task may be posted after the answer to a task behind it.
    let earliest: Case | undefined
    return row
      .toSorted((a, b) => (b.seen?.position ?? 0) - (a.seen?.position ?? 0))
      .flatMap((one): Finding[] => {
        const isLate = earliest?.okAt !== undefined && earliest.okAt < postedAt(one)
        const findings = isLate
          ? [
              findingOf(
                one,
                'misplaced',
                `posted after ${earliest?.planned.taskNo} was taken, and stands before it`
              )
            ]
          : []
        if (one.okAt !== undefined && one.okAt < (earliest?.okAt ?? Infinity)) earliest = one
        return findings
      })
  })
}

function groups(cases: readonly Case[]): Map<string, Case[]> {
  const all = new Map<string, Case[]>()
  for (const one of cases) {
    if (one.planned.orderingKey === undefined || one.seen?.position === undefined) continue
    const key = `${one.downstream} ${one.planned.orderingKey}`
    all.set(key, [...(all.get(key) ?? []), one])
  }
  return all
}

const postedAt = ({ calls }: Case): number =>
  Math.min(
    ...calls
      .filter(call => isOk(call.status) && (call.kind === 'first' || call.kind === 'again'))
      .flatMap(call => call.tries.map(tried => tried.at))
  )
