// npm run chaos: the black-box checker. docs/chaos.md describes its checks and its verdict.
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { hasRedis } from '../bench/ground.ts'
import { judge, type Verdict } from './judge.ts'
import { hasMariadb } from './mariadb.ts'
import type { Mutant } from './mutant.ts'
import { mutantProfile, producerMutantProfile, mutants } from './mutants.ts'
import { faultNames } from './nemesis-plan.ts'
import {
  faultProfile,
  help,
  profiles,
  readOptions,
  UsageError,
  type Options,
  type Profile
} from './options.ts'
import { judgeProducers, type ProducerVerdict } from './producers/judge.ts'
import { runProducers } from './producers/run.ts'
import { judgeReceivers, type ReceiverVerdict } from './receivers/judge.ts'
import { runReceivers } from './receivers/run.ts'
import { report } from './report.ts'
import { run, type Progress } from './run.ts'

const stop = new AbortController()
/** How far hosts are ahead of the database's clock: an hour, as after a missed change of the clock. */
const hourSeconds = 3_600
const codes = { green: 0, red: 1, inconclusive: 2 } as const

try {
  process.exitCode = await main()
} catch (err) {
  if (!(err instanceof UsageError)) throw err
  console.error(err.message)
  process.exitCode = 2
}

async function main(): Promise<number> {
  const options = readOptions(process.argv.slice(2), process.env)
  if (options === 'help') {
    console.log(help)
    return 0
  }
  if ((options.queue === 'redis' || options.all) && !hasRedis())
    throw new UsageError('no redis-server on the PATH: install Redis 6.2 or newer, or use --mode postgres')
  const chosen = mutants[options.mutant ?? ''] ?? options.profile
  if ((chosen.isOfProducers || chosen.isOfReceivers || options.all) && !hasMariadb())
    throw new UsageError('no mariadbd on the PATH: install MariaDB 10.6 or newer')
  process.once('SIGINT', () => {
    console.error('\nchaos: stopping; press Ctrl-C again to end at once')
    stop.abort()
    process.once('SIGINT', () => process.exit(130))
  })
  const { result, code } = options.all ? await runAll(options) : await runSingle(options)
  console.log(JSON.stringify(result))
  if (options.json !== undefined) writeFileSync(options.json, JSON.stringify(result, null, 2))
  return stop.signal.aborted ? 130 : code
}

interface Done {
  result: object
  code: number
}

async function runSingle(options: Options): Promise<Done> {
  const { mutant } = options
  const verdict = mutant === undefined ? await runOnce(options) : await runMutant(options, mutant)
  return { result: verdict, code: codes[verdict.verdict] }
}

/** A mutant has its own short profile, with the faults that expose it. */
async function runMutant(
  options: Options,
  name: string
): Promise<AnyVerdict & { mutant: string; isCaught: boolean }> {
  const mutant = mutants[name]
  if (!mutant) throw new UsageError(`--mutant must be one of ${Object.keys(mutants).join(', ')}`)
  console.error(`chaos: mutant ${name}: ${mutant.description}; expected: ${mutant.expects}`)
  const verdict = await runOnce({ ...options, profile: profileOf(mutant) }, mutant)
  return { mutant: name, isCaught: (verdict.counts[mutant.expects] ?? 0) > 0, ...verdict }
}

function profileOf(mutant: Mutant): Profile {
  const ofReceivers = profiles['receivers']
  if (mutant.isOfReceivers && ofReceivers) return ofReceivers
  return mutant.isOfProducers
    ? { ...producerMutantProfile, isCalm: mutant.isCalm === true }
    : { ...mutantProfile, only: mutant.only, ...mutant.profile }
}

/** Every mode with five seeds must be green. Every mutant must be red with the charge that it expects. */
async function runAll(options: Options): Promise<Done> {
  const runs: object[] = []
  let code = 0
  for (const queue of ['redis', 'postgres'] as const) {
    for (let seed = options.seed; seed < options.seed + 5 && !stop.signal.aborted; seed++) {
      // In the last run of each mode the clocks of the hosts differ. It must be green too, or the mutant host-clock proves nothing.
      const isLast = seed === options.seed + 4
      const verdict = await runOnce({ ...options, queue, seed, ...(isLast && { aheadSeconds: hourSeconds }) })
      code = worse(code, codes[verdict.verdict])
      runs.push({ queue, ...verdict })
    }
    for (const name of ['producers', 'keys', 'receivers']) {
      const profile = profiles[name]
      for (let seed = options.seed; profile && seed < options.seed + 2 && !stop.signal.aborted; seed++) {
        const verdict = await runOnce({ ...options, queue, seed, profile })
        code = worse(code, codes[verdict.verdict])
        runs.push({ queue, profile: name, ...verdict })
      }
    }
  }
  for (const fault of faultNames) {
    for (const queue of fault === 'sentinel' ? (['redis'] as const) : (['redis', 'postgres'] as const)) {
      if (stop.signal.aborted) break
      const profile = { ...options.profile, ...faultProfile(fault) }
      const verdict = await runOnce({ ...options, queue, fault, profile })
      code = worse(code, codes[verdict.verdict])
      runs.push({ queue, fault, ...verdict })
    }
  }
  for (const name of Object.keys(mutants)) {
    if (stop.signal.aborted) break
    const verdict = await runMutant({ ...options, queue: 'redis' }, name)
    if (!verdict.isCaught) code = 1
    runs.push({ ...verdict, findings: verdict.findings.slice(0, 3) })
  }
  const verdicts = runs.map(each => each as AnyVerdict & { mutant?: string; isCaught?: boolean })
  return {
    result: {
      verdict: code === 0 ? 'green' : code === 1 ? 'red' : 'inconclusive',
      green: verdicts.filter(each => each.mutant === undefined && each.verdict === 'green').length,
      caught: verdicts.filter(each => each.isCaught).length,
      runs
    },
    code
  }
}

/** Red wins over inconclusive. */
function worse(a: number, b: number): number {
  return a === codes.red || b === codes.red ? codes.red : Math.max(a, b)
}

type AnyVerdict = Verdict | ProducerVerdict | ReceiverVerdict

async function runOnce(options: Options, mutant?: Mutant): Promise<AnyVerdict> {
  const { seed, queue, profile, fault, keep } = options
  console.error(
    `chaos: seed ${seed}, mode ${queue}${options.together ? ', all roles together' : ''}${options.mixed === undefined ? '' : `, beside ${options.mixed}`}${fault ? `, fault ${fault}` : ''}, ${profile.seconds} s at ${profile.rate} tasks a second`
  )
  const common = {
    seed,
    queue,
    profile,
    root: fileURLToPath(new URL('../..', import.meta.url)),
    ...(fault && { fault }),
    ...(mutant && { mutant }),
    keep,
    stop: stop.signal,
    say: progressLogger()
  }
  if (profile.isOfProducers) return logged(judgeProducers(await runProducers(common), profile.fewest))
  if (profile.isOfReceivers) {
    const say = (text: string): void => console.error(`chaos: receivers: ${text}`)
    return logged(
      judgeReceivers(await runReceivers({ ...common, seconds: profile.seconds, rate: profile.rate, say }))
    )
  }
  const aheadSeconds = mutant?.aheadSeconds ?? options.aheadSeconds
  const history = await run({
    ...common,
    aheadSeconds,
    together: options.together,
    ...(options.mixed !== undefined && { mixed: options.mixed })
  })
  const verdict = logged(judge(history, profile.fewest))
  if (options.report !== undefined) writeFileSync(options.report, report(history, verdict))
  return verdict
}

function logged<OneVerdict extends AnyVerdict>(verdict: OneVerdict): OneVerdict {
  if (process.stderr.isTTY) process.stderr.write('\n')
  console.error(`chaos: ${verdict.verdict} ${JSON.stringify(verdict.counts)}, seed ${verdict.seed}`)
  return verdict
}

/** Logs a line each time. In a terminal it rewrites one line. */
function progressLogger(): (now: Progress) => void {
  return ({ phase, seconds, posted, answered, arrived, nemesis }) => {
    const line = `chaos: ${phase} ${seconds.toFixed(0)} s, ${posted} posted, ${answered} answers, ${arrived} arrived${nemesis && `; ${nemesis}`}`
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${line.slice(0, process.stderr.columns - 1)}`)
    else console.error(line)
  }
}
