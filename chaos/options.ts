// The options of the checker, and its profiles.
import { parseArgs } from 'node:util'
import { faultNames, faults, type Action, type FaultName, type Queue } from './nemesis-plan.ts'

export interface Profile {
  seconds: number
  rate: number
  /** For how long PostgreSQL is stopped. */
  stopMs: number
  /** The run stops waiting for the last deliveries after this time without progress. */
  drainMs: number
  fewest: number
  only?: readonly Action[]
  /** Another load and other faults: chaos/producers. */
  isOfProducers?: true
  /** Receivers that die: chaos/receivers. */
  isOfReceivers?: true
  /** Producers run without faults. */
  isCalm?: boolean
  /** The number of tasks of each orderingKey, if the tasks have keys. */
  perKey?: number
}

export const profiles: Record<string, Profile> = {
  quick: { seconds: 90, rate: 12, stopMs: 5_000, drainMs: 60_000, fewest: 500 },
  long: { seconds: 1_800, rate: 12, stopMs: 30_000, drainMs: 120_000, fewest: 500 },
  producers: { seconds: 40, rate: 9, stopMs: 3_000, drainMs: 0, fewest: 100, isOfProducers: true },
  receivers: { seconds: 25, rate: 12, stopMs: 0, drainMs: 0, fewest: 100, isOfReceivers: true },
  keys: { seconds: 120, rate: 25, stopMs: 5_000, drainMs: 120_000, fewest: 500, perKey: 50 }
}

/** Long enough for one cycle of its faults and the actions that run alone. */
export const faultProfile = (fault: FaultName): Pick<Profile, 'seconds' | 'only'> => ({
  seconds: 80,
  only: faults[fault]
})

export interface Options {
  seed: number
  profile: Profile
  profileName: string
  queue: Queue
  fault?: FaultName
  mutant?: string
  aheadSeconds: number
  together: boolean
  mixed?: string
  report?: string
  json?: string
  all: boolean
  keep: boolean
}

export const help = `npm run chaos -- [options]

Starts two processes of each role, or six with all roles, with their own PostgreSQL and Redis. Posts tasks, causes one fault after
another, waits until the service has recovered, reads all tasks back through the public API, and judges: no task is lost, invented,
early or unexplained. Progress goes to stderr, one JSON verdict to stdout. Exit 0: green, 1: red, 2: inconclusive, or wrong options.

  --mode redis|postgres   where BullMQ keeps its jobs (redis)
  --profile quick|long    90 s of load, or 30 min (quick)
  --profile producers     40 s with producers that commit tasks: enqueued, relayed from PostgreSQL and MariaDB, half messages, posted
  --profile receivers     receivers with ackbox/consumer die between commit and answer; needs mariadbd
  --profile keys          tasks with ordering keys, 50 of each, 120 s
  --fault thaw            processes are stopped for 10 s, and continue
  --fault failover        PostgreSQL has a synchronous standby; the primary is killed under load, and the standby promoted
  --fault sentinel        Redis has a replica and three Sentinels; the master is killed under load
  --seconds N             seconds of load, instead of the profile's
  --rate N                tasks a second (12; producers 9)
  --seed N                repeats the load and the faults of an earlier run; without it the seed is random, and 7 for a mutant
  --mixed COMMIT|FOLDER   the second process of each role runs the build of another version: half of them until the rolling restart, then all
                          run this version, and in the end all run the other one, on the schema of this version
  --ahead SECONDS         the hosts of workers and dispatchers have a clock that is ahead; this must not change the verdict
  --together              every process has all roles, as without ROLE
  --report FILE           writes an HTML page: time line, findings, the events of each task in a finding
  --json FILE             also writes the verdict to a file
  --mutant NAME           runs a service that is broken on purpose: the verdict must be red (or set MUTANT=NAME)
  --all                   both modes with five seeds each, producers, keys and receivers with two seeds each, each --fault, then every
                          mutant; green only if every result is as expected
  --keep                  keeps logs and data, and prints their folder
  --help

docs/chaos.md describes the charges and how to read the verdict.`

/** The options are not valid. The message says how to correct them. */
export class UsageError extends Error {}

export function readOptions(args: string[], env: NodeJS.ProcessEnv): Options | 'help' {
  const values = parse(args)
  if (values.help) return 'help'
  const profileName = values.profile ?? 'quick'
  const profile = profiles[profileName]
  if (!profile) throw new UsageError(`--profile must be one of ${Object.keys(profiles).join(', ')}`)
  const queue = values.mode ?? 'redis'
  if (queue !== 'redis' && queue !== 'postgres') throw new UsageError('--mode must be redis or postgres')
  const fault = faultNames.find(name => name === values.fault)
  if (values.fault !== undefined && !fault)
    throw new UsageError(`--fault must be one of ${faultNames.join(', ')}`)
  if (fault && profileName !== 'quick') throw new UsageError('--fault has a profile of its own')
  if (fault === 'sentinel' && queue !== 'redis') throw new UsageError('--fault sentinel needs --mode redis')
  const mutant = values.mutant ?? (env['MUTANT'] || undefined)
  const extra = (['report', 'ahead', 'together', 'mixed'] as const).find(name => values[name] !== undefined)
  if ((profile.isOfProducers || profile.isOfReceivers) && extra)
    throw new UsageError(`--profile ${profileName} takes no --${extra}`)
  if (mutant !== undefined && values.mixed !== undefined) throw new UsageError('--mixed takes no --mutant')
  return {
    seed: values.seed === undefined ? seedFor(mutant) : whole('seed', values.seed, 0, 2 ** 31),
    profileName,
    profile: {
      ...profile,
      ...(fault && faultProfile(fault)),
      ...(values.seconds !== undefined && { seconds: whole('seconds', values.seconds, 5, 86_400) }),
      ...(values.rate !== undefined && { rate: whole('rate', values.rate, 1, 1_000) })
    },
    queue,
    aheadSeconds: values.ahead === undefined ? 0 : whole('ahead', values.ahead, 0, 86_400),
    together: values.together ?? false,
    all: values.all ?? false,
    keep: values.keep ?? false,
    ...(fault && { fault }),
    ...(mutant !== undefined && { mutant }),
    ...(values.mixed !== undefined && { mixed: values.mixed }),
    ...(values.report !== undefined && { report: values.report }),
    ...(values.json !== undefined && { json: values.json })
  }
}

function parse(args: string[]) {
  try {
    return parseArgs({
      args,
      options: {
        mode: { type: 'string' },
        profile: { type: 'string' },
        fault: { type: 'string' },
        seconds: { type: 'string' },
        rate: { type: 'string' },
        seed: { type: 'string' },
        ahead: { type: 'string' },
        together: { type: 'boolean' },
        mixed: { type: 'string' },
        report: { type: 'string' },
        json: { type: 'string' },
        mutant: { type: 'string' },
        all: { type: 'boolean' },
        keep: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' }
      }
    }).values
  } catch (err) {
    throw new UsageError((err as Error).message)
  }
}

function whole(name: string, text: string, low: number, high: number): number {
  const number = Number(text)
  if (/^\d+$/.test(text) && number >= low && number <= high) return number
  throw new UsageError(`--${name} must be a whole number from ${low} to ${high}`)
}

/** Each mutant is caught with this seed. With another one the load may have none of the tasks that the mutant breaks. */
const seedOfMutants = 7

const seedFor = (mutant: string | undefined): number =>
  mutant === undefined ? Math.floor(Math.random() * 1e9) : seedOfMutants
