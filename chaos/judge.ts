// The verdict: all charges over the whole history. Pure, so that tests can show that each charge finds only its own fault.
import type { History } from './history.ts'
import * as answers from './judge/answers.ts'
import * as arrivals from './judge/arrivals.ts'
import { duplicates } from './judge/duplicates.ts'
import * as keys from './judge/keys.ts'
import { evidenceOf, type Evidence } from './judge/evidence.ts'
import type { Charge, Finding } from './judge/finding.ts'

export interface Verdict {
  verdict: 'green' | 'red' | 'inconclusive'
  seed: number
  /** Why there can be no verdict; else empty. */
  inconclusive: string[]
  tasks: number
  accepted: number
  arrivals: number
  statuses: Record<string, number>
  duplicates: { extra: number; causes: Record<string, number> }
  actions: Record<string, number>
  /** How many of each charge. */
  counts: Partial<Record<Charge, number>>
  findings: Finding[]
}

const checks: ((evidence: Evidence) => Finding[])[] = [
  arrivals.lost,
  arrivals.unexpected,
  answers.vanished,
  answers.stuck,
  answers.failedEarly,
  arrivals.corrupted,
  arrivals.early,
  arrivals.unaccounted,
  arrivals.nonMonotone,
  answers.receiptLost,
  answers.falseHandled,
  arrivals.afterTerminal,
  arrivals.overLimit,
  answers.conflict,
  answers.refused,
  answers.unanswered,
  answers.silentFailure,
  arrivals.overdue,
  answers.leaked,
  answers.crashed,
  answers.declaredDead,
  answers.forged,
  answers.rollingPost,
  answers.inside,
  keys.overtaken,
  keys.misplaced
]

export function judge(history: History, fewest: number): Verdict {
  const evidence = evidenceOf(history)
  const repeats = duplicates(evidence)
  const findings = [...checks.flatMap(check => check(evidence)), ...repeats.unexplained]
  const inconclusive = doubts(history, evidence, fewest)
  return {
    // A finding counts in spite of doubts.
    verdict: findings.length > 0 ? 'red' : inconclusive.length > 0 ? 'inconclusive' : 'green',
    seed: history.seed,
    inconclusive,
    tasks: history.calls.filter(({ kind }) => kind === 'first').length,
    accepted: acceptedIn(evidence),
    arrivals: history.arrivals.length,
    statuses: tally(history.tasks.map(({ status }) => status)),
    duplicates: { extra: repeats.extra, causes: repeats.causes },
    actions: tally(history.faults.map(({ action }) => action)),
    counts: tally(findings.map(({ charge }) => charge)),
    findings
  }
}

const acceptedIn = ({ cases }: Evidence): number =>
  new Set(cases.filter(({ okAt }) => okAt !== undefined).map(({ planned }) => planned.taskNo)).size

function doubts(history: History, evidence: Evidence, fewest: number): string[] {
  const ran = new Set(history.faults.map(({ action }) => action))
  const accepted = acceptedIn(evidence)
  return [
    ...(history.interrupted ? ['it was interrupted'] : []),
    ...(accepted < fewest ? [`${accepted} tasks, fewer than ${fewest}`] : []),
    ...history.wanted.filter(action => !ran.has(action)).map(action => `${action} never ran`),
    ...(ran.has('rolling') && !wasRollingMet(history) ? ['no POST met the rolling restart'] : []),
    ...(history.insideSamples < fewestSamples
      ? [`${history.insideSamples} samples inside the database, fewer than ${fewestSamples}`]
      : [])
  ]
}

/** Samples are taken once a second. */
const fewestSamples = 10

/** A restart that comes when the load is over shows nothing. */
function wasRollingMet({ calls, faults }: History): boolean {
  const posts = calls.filter(({ kind }) => kind === 'first' || kind === 'again').flatMap(({ tries }) => tries)
  return faults.some(
    ({ action, from, to }) => action === 'rolling' && posts.some(({ at }) => at >= from && at <= to)
  )
}

function tally<Name extends string>(names: readonly Name[]): Record<Name, number> {
  const counts = {} as Record<Name, number>
  for (const name of names) counts[name] = (counts[name] ?? 0) + 1
  return counts
}
