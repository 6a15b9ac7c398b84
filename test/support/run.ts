// npm test: runs compiled test files, several at once, the longest first. It does not use tap's runner, which loads itself
// into every process that a test starts and parses every assertion a second time: that cost half a second a file.
import { spawn, type ChildProcess } from 'node:child_process'
import { closeSync, mkdirSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import path from 'node:path'
import { parseArgs } from 'node:util'
import { testFiles, tierNames, type TestFile, type Tier } from './tiers.ts'
import { slowFiles, sum, verdictOf, type Verdict } from './verdict.ts'

const help = `npm test -- [file or folder…] [options]

  npm test                                     all files except those of the tiers long and interop
  npm test -- test/delivery/accept.test.ts     one file, or several
  npm test -- test/db                          a folder
  npm run test:unit | test:db | test:system    without a server | with PostgreSQL or Redis | processes and faults
  npm run test:long                            stories of many processes, every failpoint by every fault, upgrades: 15 s or more each

  --tier NAME    unit, db, system, long or interop: only the files of this tier
  --jobs N       files at once; by default the number of processors plus one, for the tier long twice the number plus one
  --list         the files, each with its tier
  --help

At the end the files that took more than 30 s are listed as Slow files. That is a hint, never a failure: a busy machine slows every file.
The output of each file is in .tap/test-results. To run one test of a file, write t.only, and run the file with TAP_ONLY=1.`

const root = path.resolve(import.meta.dirname, '../../..')
const results = path.join(root, '.tap/test-results')
const times = path.join(root, '.tap/seconds.json')
/** Long, as it only ends a hang: on a busy machine a file takes many times as long as alone. Interop fetches and builds servers. */
const mostSeconds = (tier: Tier): number => (onDemand.has(tier) ? 2_400 : 660)

/** Long tests wait for most of their time: each uses about a third of a processor. */
const jobsOf = (tier: string | undefined): number => availableParallelism() * (tier === 'long' ? 2 : 1) + 1

/** Without a name or a tier they do not run. */
const onDemand: ReadonlySet<Tier> = new Set(['long', 'interop'])

const running = new Set<ChildProcess>()
process.exitCode = await main()

async function main(): Promise<number> {
  const { values, positionals } = options()
  if (values.help) return say(help)
  const all = testFiles(path.join(root, 'dist'))
  const files = chosen(all, positionals, values.tier)
  if (typeof files === 'string') return refuse(files)
  if (values.list) return say(files.map(({ tier, source }) => `${tier.padEnd(6)} ${source}`).join('\n'))
  const jobs = Number(values.jobs ?? jobsOf(values.tier))
  if (!Number.isInteger(jobs) || jobs < 1) return refuse(`--jobs ${values.jobs} is no number of files`)
  mkdirSync(results, { recursive: true })
  const known = timesOfLast()
  // The guess for files without a known time: system and long run first.
  const guess = { unit: 0, db: 1, system: 600, long: 601, interop: 602 }
  const queue = files.toSorted(
    (a, b) => (known[b.source] ?? guess[b.tier]) - (known[a.source] ?? guess[a.tier])
  )
  const began = performance.now()
  const verdicts: Verdict[] = []
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => {
      queue.length = 0
      for (const child of running) end(child, 'SIGTERM')
    })
  await Promise.all(
    Array.from({ length: jobs }, async () => {
      for (let file = queue.shift(); file; file = queue.shift()) {
        const verdict = await run(file)
        verdicts.push(verdict)
        report(verdict)
      }
    })
  )
  writeFileSync(
    times,
    JSON.stringify({ ...known, ...Object.fromEntries(verdicts.map(one => [one.source, one.seconds])) })
  )
  return conclude(verdicts, files.length, (performance.now() - began) / 1000)
}

function options() {
  try {
    return parseArgs({
      allowPositionals: true,
      options: {
        tier: { type: 'string' },
        jobs: { type: 'string', short: 'j' },
        list: { type: 'boolean' },
        help: { type: 'boolean', short: 'h' }
      }
    })
  } catch (err) {
    refuse(err instanceof Error ? err.message : String(err))
    process.exit(2)
  }
}

/** The files that the arguments name, or an error message. */
function chosen(all: TestFile[], args: string[], tier: string | undefined): TestFile[] | string {
  if (tier !== undefined && !tierNames.some(name => name === tier))
    return `there is no tier ${tier}: ${tierNames.join(', ')}`
  const inTier = (file: TestFile) =>
    tier === undefined ? args.length > 0 || !onDemand.has(file.tier) : file.tier === tier
  const files = new Set<TestFile>()
  for (const arg of args.length === 0 ? ['test'] : args) {
    const name = path.posix
      .normalize(path.relative(root, path.resolve(arg)).replaceAll(path.sep, '/'))
      .replace(/^dist\//, '')
      .replace(/\.js$/, '.ts')
    const found = all.filter(({ source }) => source === name || source.startsWith(`${name}/`))
    if (found.length === 0) return missing(all, arg, name)
    for (const file of found.filter(inTier)) files.add(file)
  }
  return files.size > 0 ? [...files] : `nothing of tier ${tier} in ${args.join(', ')}`
}

function missing(all: TestFile[], arg: string, name: string): string {
  const part = path.posix.basename(name).replace(/(?:\.test)?\.ts$/, '')
  const near = all.filter(({ source }) => source.includes(part)).slice(0, 5)
  const elsewhere = /^test\/(package|image|schemathesis)\b/.exec(name)?.[1]
  if (elsewhere) return `${arg} has a script of its own: npm run test:${elsewhere}`
  return [
    `there is no test ${arg}${near.length > 0 ? '; perhaps' : ': npm test -- --list shows all'}`,
    ...near.map(({ source }) => `  ${source}`)
  ].join('\n')
}

async function run({ compiled, source, tier }: TestFile): Promise<Verdict> {
  const log = path.join(results, `${source.replaceAll('/', '-')}.tap`)
  rmSync(log, { force: true })
  const output = openSync(log, 'w')
  const began = performance.now()
  // A process group of its own: a kill also ends the processes that the test started.
  const child = spawn(process.execPath, ['--enable-source-maps', path.join(root, compiled)], {
    cwd: root,
    env: { ...process.env, TAP_TIMEOUT: String(mostSeconds(tier)) },
    stdio: ['ignore', output, output],
    detached: true
  })
  closeSync(output)
  running.add(child)
  let isLate = false
  const late = setTimeout(
    () => {
      isLate = true
      end(child, 'SIGKILL')
    },
    (mostSeconds(tier) + 20) * 1000
  )
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve, reject) => {
    child.once('exit', (...how) => resolve(how))
    child.once('error', reject)
  })
  clearTimeout(late)
  running.delete(child)
  const seconds = Math.round(performance.now() - began) / 1000
  return verdictOf(source, readFileSync(log, 'utf8'), { code, signal, seconds, isLate })
}

function end(child: ChildProcess, signal: NodeJS.Signals): void {
  try {
    if (child.pid !== undefined) process.kill(-child.pid, signal)
  } catch {
    // It has just ended.
  }
}

function report({ source, pass, skip, seconds, failed, complaint, skipped }: Verdict): void {
  const counted = `${pass} passed${skip > 0 ? `, ${skip} skipped` : ''}, ${seconds.toFixed(1)} s`
  console.log(
    `${failed === undefined ? 'ok    ' : 'FAILED'} ${source} (${counted})${failed ? `: ${failed}` : ''}`
  )
  for (const line of [...skipped, ...complaint]) console.log(`    ${line}`)
}

function conclude(verdicts: Verdict[], fileCount: number, seconds: number): number {
  const failed = verdicts.filter(one => one.failed !== undefined)
  if (verdicts.length > 3) {
    console.log('\nThe longest:')
    for (const one of verdicts.toSorted((a, b) => b.seconds - a.seconds).slice(0, 5))
      console.log(`  ${one.seconds.toFixed(1).padStart(6)} s  ${one.source}`)
  }
  const slow = slowFiles(verdicts)
  if (slow.length > 0) console.log(`\n${slow.join('\n')}`)
  const [pass, fail, skip] = [sum(verdicts, 'pass'), sum(verdicts, 'fail'), sum(verdicts, 'skip')]
  if (failed.length > 0) console.log(`\nFailed:\n${failed.map(one => `  ${one.source}`).join('\n')}`)
  console.log(`\n${verdicts.length} of ${fileCount} files in ${seconds.toFixed(1)} s`)
  console.log(
    `# { total: ${pass + fail + skip}, pass: ${pass}, fail: ${fail}${skip > 0 ? `, skip: ${skip}` : ''} }`
  )
  return failed.length > 0 || verdicts.length < fileCount ? 1 : 0
}

function timesOfLast(): Record<string, number> {
  try {
    return JSON.parse(readFileSync(times, 'utf8')) as Record<string, number>
  } catch {
    return {}
  }
}

function say(text: string): number {
  console.log(text)
  return 0
}

function refuse(message: string): number {
  console.error(message)
  return 2
}
