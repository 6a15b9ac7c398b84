// npm run fuzz: plays mutated, cut, false and endless inputs to every reader of the network.
import { readdirSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { Finding, type Done, type FindingReport, type Reader } from './reader.ts'

const help = `npm run fuzz -- [options]

Plays mutated inputs to every reader of the network, in a process that is watched from outside. These are findings: the process ends,
a library prints a line, memory rises by more than 128 MB above idle, the event loop is blocked for more than 200 ms of CPU time, a
promise never ends, an answer is 5xx, a value is wrong. Progress goes to stderr, one JSON verdict to stdout.
Exit 0: green, 1: red, 2: wrong options, 130: interrupted by Ctrl-C, with the verdict so far.

  --minutes N      for all readers together, one after another (1)
  --cases N        the number of cases of each reader, instead of minutes
  --only a,b       only these readers
  --seed N         repeats the inputs of an earlier run; without it the seed is random
  --list           prints the names of the readers
  --help

A finding is printed with its input. As a file in test/fuzz/corpus/<reader> it is played again by npm test.`

class UsageError extends Error {}

interface Options {
  minutes: number
  cases: number
  only: string[] | undefined
  seed: number
  list: boolean
}

const stop = new AbortController()

try {
  process.exitCode = await main()
} catch (err) {
  if (!(err instanceof UsageError)) throw err
  console.error(`${err.message}; see --help`)
  process.exitCode = 2
}

async function main(): Promise<number> {
  const options = readOptions(process.argv.slice(2))
  if (options === 'help') {
    console.log(help)
    return 0
  }
  const readers = await chosen(options.only)
  if (options.list) {
    console.log(readers.map(({ name }) => name).join('\n'))
    return 0
  }
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => {
      console.error('\nfuzz: stopping; press Ctrl-C again to end at once')
      stop.abort()
      process.once(signal, () => process.exit(130))
    })
  }
  console.error(`fuzz: seed ${options.seed}, ${readers.map(({ name }) => name).join(' ')}`)
  const done: Record<string, Done> = {}
  const findings: FindingReport[] = []
  const started = performance.now()
  for (const [nth, reader] of readers.entries()) {
    if (stop.signal.aborted) break
    const leftMs = options.minutes * 60_000 - (performance.now() - started)
    const end = performance.now() + leftMs / (readers.length - nth)
    try {
      done[reader.name] = await reader.run({
        seed: options.seed,
        cases: options.cases,
        isOver: () => stop.signal.aborted || performance.now() > end,
        progress: progressLogger(reader.name),
        signal: stop.signal
      })
    } catch (error) {
      if (!(error instanceof Finding) || !error.report) throw error
      findings.push(error.report)
      console.error(`fuzz: ${reader.name}: ${JSON.stringify(error.report).slice(0, 1_000)}`)
    }
    const result = done[reader.name]
    if (process.stderr.isTTY) process.stderr.write('\r\x1b[K')
    if (result) console.error(`fuzz: ${reader.name} ${JSON.stringify(result)}`)
  }
  const cases = Object.values(done).reduce((sum, each) => sum + each.cases, 0)
  const verdict = findings.length === 0 ? 'green' : 'red'
  const seconds = Math.round((performance.now() - started) / 1_000)
  const isInterrupted = stop.signal.aborted
  console.log(
    JSON.stringify({ verdict, isInterrupted, seed: options.seed, seconds, cases, findings, readers: done })
  )
  if (findings.length > 0) return 1
  return isInterrupted ? 130 : 0
}

/** Each file of fuzz/readers is a reader. */
async function chosen(only: string[] | undefined): Promise<Reader[]> {
  const folder = new URL('readers/', import.meta.url)
  const all = readdirSync(folder)
    .filter(file => file.endsWith('.js'))
    .sort()
    .map(file => file.slice(0, -3))
  const unknown = only?.find(name => !all.includes(name))
  if (unknown !== undefined) throw new UsageError(`--only takes some of ${all.join(',')}, not ${unknown}`)
  return await Promise.all(
    (only ?? all).map(async name => {
      const { reader } = (await import(new URL(`${name}.js`, folder).href)) as { reader: Reader }
      if (reader.name !== name) throw new Error(`fuzz/readers/${name}.ts exports the reader ${reader.name}`)
      return reader
    })
  )
}

/** Logs a line every ten seconds. In a terminal it rewrites one line. */
function progressLogger(name: string): (cases: number) => void {
  let loggedAt = performance.now()
  return cases => {
    const line = `fuzz: ${name} ${cases} cases`
    if (process.stderr.isTTY) process.stderr.write(`\r\x1b[K${line.slice(0, process.stderr.columns - 1)}`)
    else if (performance.now() - loggedAt > 10_000) {
      loggedAt = performance.now()
      console.error(line)
    }
  }
}

function readOptions(args: string[]): Options | 'help' {
  const values = parse(args)
  if (values.help) return 'help'
  if (values.cases !== undefined && values.minutes !== undefined)
    throw new UsageError('--cases and --minutes exclude each other')
  const cases = values.cases === undefined ? Infinity : number('cases', values.cases)
  return {
    cases,
    minutes: cases < Infinity ? Infinity : number('minutes', values.minutes ?? '1'),
    only: values.only?.split(','),
    seed: values.seed === undefined ? Math.floor(Math.random() * 1e9) : number('seed', values.seed),
    list: values.list ?? false
  }
}

function parse(args: string[]) {
  try {
    const text = { type: 'string' } as const
    const flag = { type: 'boolean' } as const
    const options = { minutes: text, cases: text, only: text, seed: text, list: flag, help: flag } as const
    return parseArgs({ args, options }).values
  } catch (err) {
    throw new UsageError((err as Error).message)
  }
}

function number(name: string, text: string): number {
  const value = Number(text)
  const isWhole = name === 'minutes' || Number.isSafeInteger(value)
  if (text !== '' && value > 0 && value < 2 ** 31 && isWhole) return value
  throw new UsageError(`--${name} must be a positive ${name === 'minutes' ? '' : 'whole '}number`)
}
