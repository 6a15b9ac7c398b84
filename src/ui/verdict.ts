// The current problems, independent of the time span of a chart.
import { sumOf, sumText } from './counts.ts'
import type { Alarm, Downstream, Group, Node, Stats } from './shapes.ts'

export interface VerdictFacts {
  downstreams: readonly Downstream[]
  /** The last hour by downstream, in steps of 5 minutes. */
  lately: Stats
  /** The failures of the last 30 days. */
  failures: readonly Group[]
  /** Open alarms of other kinds than FAILED, of any age. */
  alarms: { alarms: readonly Alarm[]; nextCursor?: string }
  held: { keys: readonly object[]; nextCursor?: string }
  nodes: readonly Node[]
}

export type Wrong =
  | { code: 'NO_WORKER' }
  | { code: 'NO_DISPATCHER' }
  | { code: 'FAILING'; downstream: string }
  | { code: 'FAILED'; count: string }
  | { code: 'GROUP'; group: Group }
  | { code: 'HELD'; count: string }
  | { code: 'OVERDUE'; downstream: string; since: string }
  | { code: 'PAUSED'; downstream: string }
  | { code: 'ALARM'; kind: string; downstream: string; count: string }

/** A due delivery is a problem only after this wait. */
const patienceMs = 5 * 60_000
const mostGroups = 5

export function verdict(
  { downstreams, lately, failures, alarms, held, nodes }: VerdictFacts,
  now: Date
): Wrong[] {
  const alive = (role: string): boolean => nodes.some(one => one.live && one.roles.includes(role))
  const failed = sumOf(downstreams.map(one => one.failed))
  // A paused downstream is already reported as paused.
  const overdue = downstreams.flatMap(({ name, pausedAt, oldestDueAt }): Wrong[] =>
    pausedAt === undefined &&
    oldestDueAt !== undefined &&
    now.getTime() - Date.parse(oldestDueAt) > patienceMs
      ? [{ code: 'OVERDUE', downstream: name, since: oldestDueAt }]
      : []
  )
  return [
    ...(alive('worker') ? [] : [{ code: 'NO_WORKER' } as const]),
    ...(alive('dispatcher') ? [] : [{ code: 'NO_DISPATCHER' } as const]),
    ...downstreams.flatMap(({ name }): Wrong[] =>
      isFailing(lately, name) ? [{ code: 'FAILING', downstream: name }] : []
    ),
    ...(failed.n > 0 ? [{ code: 'FAILED', count: sumText(failed) } as const] : []),
    ...failures
      .filter(one => one.failed > 0)
      .slice(0, mostGroups)
      .map((group): Wrong => ({ code: 'GROUP', group })),
    ...(held.keys.length > 0
      ? [
          {
            code: 'HELD',
            count: sumText({ n: held.keys.length, isMore: held.nextCursor !== undefined })
          } as const
        ]
      : []),
    ...overdue,
    ...downstreams.flatMap(({ name, pausedAt }): Wrong[] =>
      pausedAt === undefined ? [] : [{ code: 'PAUSED', downstream: name }]
    ),
    ...alarmsByKind(alarms)
  ]
}

function alarmsByKind({ alarms, nextCursor }: VerdictFacts['alarms']): Wrong[] {
  const counts = new Map<string, { kind: string; downstream: string; n: number }>()
  for (const { kind, downstream } of alarms) {
    const key = `${kind} ${downstream}`
    counts.set(key, { kind, downstream, n: (counts.get(key)?.n ?? 0) + 1 })
  }
  return [...counts.values()].map(({ n, ...rest }) => ({
    code: 'ALARM',
    ...rest,
    count: sumText({ n, isMore: nextCursor !== undefined })
  }))
}

const stepMs = 300_000

/** The counts of the last hour, in steps of five minutes. */
export function slots(stats: Stats, name: string, of: 'attempts' | 'failedAttempts'): number[] {
  const series = stats.series.find(({ downstream }) => downstream === name)
  const from = Math.floor(Date.parse(stats.from) / stepMs) * stepMs
  return Array.from(
    { length: 13 },
    (_, at) => series?.points.find(point => Date.parse(point.at) === from + at * stepMs)?.[of] ?? 0
  )
}

/** True: more than 30 % of the attempts of the last 5 to 10 minutes failed, as docs/operations.md says of a downstream with a problem. */
export function isFailing(stats: Stats, name: string): boolean {
  const lately = (of: 'attempts' | 'failedAttempts'): number =>
    slots(stats, name, of)
      .slice(-2)
      .reduce((a, b) => a + b, 0)
  const failed = lately('failedAttempts')
  return failed > 0.3 * lately('attempts')
}
