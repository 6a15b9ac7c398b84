// npm run chaos: the black-box checker. docs/chaos.md says what it does and how to read what it says.
import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { judge, type Verdict } from './judge.ts'
import { help, readOptions, UsageError, type Options } from './options.ts'
import { report } from './report.ts'
import { run, type Progress } from './run.ts'
import { hasRedis } from './servers.ts'

const stop = new AbortController()
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
  if (options.queue === 'redis' && !hasRedis())
    throw new UsageError('no redis-server on the PATH: install Redis 6.2 or newer, or use --mode postgres')
  process.once('SIGINT', () => {
    console.error('\nchaos: stopping; once more ends at once')
    stop.abort()
    process.once('SIGINT', () => process.exit(130))
  })
  const verdict = await one(options)
  console.log(JSON.stringify(verdict))
  return stop.signal.aborted ? 130 : codes[verdict.verdict]
}

async function one(options: Options): Promise<Verdict> {
  const { seed, queue, profile } = options
  console.error(`chaos: seed ${seed}, mode ${queue}, ${profile.seconds} s at ${profile.rate} tasks a second`)
  const history = await run({
    seed,
    queue,
    profile,
    dist: fileURLToPath(new URL('..', import.meta.url)),
    extra: {},
    keep: options.keep,
    stop: stop.signal,
    say: teller()
  })
  const verdict = judge(history, profile.fewest)
  if (options.report !== undefined) writeFileSync(options.report, report(history, verdict))
  if (options.json !== undefined) writeFileSync(options.json, JSON.stringify(verdict, null, 2))
  return verdict
}

/** A line each time; in a terminal one line that changes. */
function teller(): (now: Progress) => void {
  return ({ phase, seconds, posted, answered, arrived, nemesis }) => {
    const line = `chaos: ${phase} ${seconds.toFixed(0)} s, ${posted} posted, ${answered} answers, ${arrived} arrived${nemesis && `; ${nemesis}`}`
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${line.slice(0, process.stderr.columns - 1)}`)
    else console.error(line)
  }
}
