// Judges a run of receivers by the tables of the receivers.
import type { Exit } from '../history.ts'
import type { Charge } from '../judge/finding.ts'
import type { Place } from './terms.ts'

export interface ReceiverHistory {
  seed: number
  /** taskNo and points of each task that was answered 2xx. */
  accepted: readonly { taskNo: string; points: number }[]
  /** Deliveries that did not end HANDLED, as `taskNo downstream status`. */
  unhandled: readonly string[]
  /** The granted sum of each database and kind. */
  granted: Record<string, number>
  /** Receipts that were never sent. */
  unsent: Record<string, number>
  /** How often a receiver on each database died, and where. */
  deaths: Record<string, Record<Place, number>>
  serviceKills: number
  /** Attempts beyond the first of each delivery. */
  repeats: number
  /** Of the service and of the receivers. */
  exits: readonly Exit[]
}

export interface ReceiverVerdict {
  verdict: 'green' | 'red' | 'inconclusive'
  seed: number
  tasks: number
  points: number
  granted: Record<string, number>
  deaths: Record<string, Record<Place, number>>
  serviceKills: number
  repeats: number
  counts: Partial<Record<Charge, number>>
  findings: string[]
  doubts: string[]
}

const fewestTasks = 100
/** Deaths between the commit and the answer, on each database. */
const fewestDeaths = 3

export function judgeReceivers(history: ReceiverHistory): ReceiverVerdict {
  const { seed, accepted, granted, unhandled, unsent, deaths, serviceKills, repeats, exits } = history
  const points = accepted.reduce((sum, one) => sum + one.points, 0)
  const inexact = Object.entries(granted)
    .filter(([, sum]) => sum !== points)
    .map(([where, sum]) => `${where} granted ${sum} points, and the tasks are worth ${points}`)
  const stuck = [
    ...unhandled.map(one => `not handled: ${one}`),
    ...Object.entries(unsent)
      .filter(([, count]) => count > 0)
      .map(([where, count]) => `${count} receipts in ${where} were never sent`)
  ]
  const crashed = exits
    .filter(one => !wasPlanned(one))
    .map(({ name, signal, code, logTail = '' }) => `${name} ended with ${signal ?? code}: ${logTail}`)
  const findings = [...inexact, ...stuck, ...crashed]
  const doubts = [
    ...(accepted.length < fewestTasks ? [`${accepted.length} tasks, fewer than ${fewestTasks}`] : []),
    ...Object.entries(deaths)
      .filter(([, at]) => at['after-commit'] < fewestDeaths)
      .map(([where, at]) => `only ${at['after-commit']} deaths between commit and answer on ${where}`),
    ...(repeats === 0 ? ['nothing was sent twice'] : [])
  ]
  return {
    verdict: findings.length > 0 ? 'red' : doubts.length > 0 ? 'inconclusive' : 'green',
    seed,
    tasks: accepted.length,
    points,
    granted,
    deaths,
    serviceKills,
    repeats,
    counts: {
      ...(inexact.length > 0 && { inexact: inexact.length }),
      ...(stuck.length > 0 && { stuck: stuck.length }),
      ...(crashed.length > 0 && { crashed: crashed.length })
    },
    findings: findings.slice(0, 20),
    doubts
  }
}

/** The run killed it, or it is a receiver that died where it had to: its log ends with the place. No database is away in this run. */
const wasPlanned = ({ by, signal, logTail = '' }: Exit): boolean =>
  by === 'kill' || (signal === 'SIGKILL' && /(^|\n)died [a-z-]+\n$/.test(logTail))
