// npm run bench: how fast, beside the fastest and the usual way of doing it, in the same minutes on the same machine.
import { availableParallelism } from 'node:os'
import { parseArgs } from 'node:util'
import { prepare, type Ground } from './ground.ts'
import { median } from './median.ts'
import { measure, type Amounts, type Measured } from './measure.ts'
import { variants, type Variant } from './variants.ts'

const help = `npm run bench -- [options]
npm run bench -- transports [options]    clients of queues; see its own --help
npm run bench -- soak [options]          twice its capacity for minutes: memory, refusals, age of the backlog
npm run bench -- isolation [options]     what nine downstreams feel of a tenth that never answers
npm run bench -- shapes [options]        receipts, batches, many downstreams, several processes
npm run bench -- curves [options]        throughput by POSTs in flight, latency by rate, drawn

Runs each variant alone, one after the other, round after round, on a PostgreSQL and a Redis of its own.
Progress and a table go to stderr; stdout gets one line of JSON for each variant, with its ratio to the relay.

${variants.map(({ name, what }) => `  ${name.padEnd(16)} ${what}`).join('\n')}

  --tasks N      tasks of a round, as fast as answers come   (20000)
  --warm N       tasks before each round that count for nothing: services run for days (as many again)
  --rounds N     rounds; medians are reported                (3)
  --in-flight N  POSTs in flight, one connection each        (256)
  --rate N       tasks a second of the latency part          (200)
  --only A,B     these variants only
  --quick        a tiny run that shows that all of it works
  --help

BENCH_NODE='--cpu-prof …' gives Ackbox more flags of Node, for a look inside.`

const number = (text: string) => {
  const value = Number(text)
  if (Number.isInteger(value) && value > 0) return value
  console.error(`expected a positive whole number, not ${JSON.stringify(text)}; see npm run bench -- --help`)
  process.exit(2)
}
const round = (value: number | undefined, digits: number) =>
  value === undefined ? null : Number(value.toFixed(digits))

const total = ({ cpuMsPerTask }: Measured) => Object.values(cpuMsPerTask).reduce((sum, ms) => sum + ms, 0)

function options() {
  const { values } = parseArgs({
    options: {
      tasks: { type: 'string' },
      warm: { type: 'string' },
      rounds: { type: 'string' },
      'in-flight': { type: 'string', default: '256' },
      rate: { type: 'string', default: '200' },
      only: { type: 'string' },
      quick: { type: 'boolean', default: false },
      help: { type: 'boolean', short: 'h' }
    }
  })
  if (values.help) {
    console.log(help)
    process.exit(0)
  }
  const { quick } = values
  const only = values.only?.split(',')
  return {
    amounts: {
      tasks: number(values.tasks ?? (quick ? '300' : '20000')),
      warm: number(values.warm ?? (quick ? '100' : (values.tasks ?? '20000'))),
      inFlight: number(values['in-flight']),
      rate: number(values.rate),
      rateSeconds: quick ? 1 : 10,
      settleMs: quick ? 200 : 1500
    },
    rounds: number(values.rounds ?? (quick ? '1' : '3')),
    chosen: variants.filter(({ name }) => only === undefined || only.includes(name) || name === 'relay')
  }
}

async function compare(ground: Ground, chosen: Variant[], rounds: number, amounts: Amounts) {
  const results = new Map<string, Measured[]>(chosen.map(({ name }) => [name, []]))
  for (let turn = 1; turn <= rounds; turn++) {
    for (const variant of chosen) {
      console.error(`round ${turn}/${rounds}: ${variant.name}`)
      const measured = await measure(variant, ground, amounts)
      console.error(
        `  ${Math.round(measured.tasksPerSecond)} tasks/s, p50 ${measured.p50.toFixed(1)} ms, p99 ${measured.p99.toFixed(1)} ms, ` +
          `CPU ${total(measured).toFixed(3)} ms a task, lost ${measured.lost}, duplicates ${measured.duplicates}`
      )
      results.get(variant.name)?.push(measured)
    }
  }
  return results
}

function report(results: Map<string, Measured[]>, amounts: Amounts): boolean {
  const baseline = results.get('relay') ?? []
  let good = true
  for (const [name, measured] of results) {
    const of = (key: Exclude<keyof Measured, 'cpuMsPerTask'>) => median(measured.map(one => one[key] ?? NaN))
    const parts = Object.keys(measured[0]?.cpuMsPerTask ?? {})
    const part = (what: string) => round(median(measured.map(one => one.cpuMsPerTask[what] ?? NaN)), 3)
    const sum = (key: 'lost' | 'duplicates' | 'refused') =>
      measured.reduce((total, one) => total + one[key], 0)
    // Neighbours in time are compared, so that a machine that slows down meanwhile changes little.
    const ratio = median(
      measured.map((one, turn) => one.tasksPerSecond / (baseline[turn]?.tasksPerSecond ?? NaN))
    )
    good &&= sum('lost') === 0 && sum('refused') === 0
    const line = {
      bench: name,
      ratio: round(ratio, 3),
      tasksPerSecond: round(of('tasksPerSecond'), 0),
      lost: sum('lost'),
      duplicates: sum('duplicates'),
      refused: sum('refused'),
      p50Ms: round(of('p50'), 2),
      p99Ms: round(of('p99'), 2),
      cpuMsPerTask: round(median(measured.map(total)), 3),
      cpuMsPerTaskOf: Object.fromEntries(parts.map(what => [what, part(what)])),
      statementsPerTask: round(measured[0]?.statementsPerTask && of('statementsPerTask'), 3),
      commitsPerTask: round(measured[0]?.commitsPerTask && of('commitsPerTask'), 3),
      rounds: measured.length,
      tasks: amounts.tasks,
      rate: amounts.rate,
      cores: availableParallelism(),
      node: process.version
    }
    console.log(JSON.stringify(line))
  }
  return good
}

async function pipeline(): Promise<void> {
  const { amounts, rounds, chosen } = options()
  const interrupt = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => interrupt.abort(signal))
  let ground: Ground | undefined
  try {
    ground = await prepare(interrupt.signal)
    const { redisUrl } = ground
    const possible = chosen.filter(({ name, needsRedis }) => {
      if (!needsRedis || redisUrl !== undefined) return true
      console.error(`skipped: ${name}, since there is no redis-server on the path`)
      return false
    })
    const results = await compare(ground, possible, rounds, amounts)
    if (!report(results, amounts)) {
      console.error('tasks were lost or refused: these numbers are worth nothing')
      process.exitCode = 1
    }
  } catch (err) {
    if (!interrupt.signal.aborted) throw err
    console.error('interrupted')
    process.exitCode = interrupt.signal.reason === 'SIGINT' ? 130 : 143
  } finally {
    await ground?.close()
  }
}

const rest = process.argv.slice(3)
if (process.argv[2] === 'transports') await (await import('./transports.ts')).main(rest)
else if (process.argv[2] === 'soak') await (await import('./soak.ts')).main(rest)
else if (process.argv[2] === 'isolation') await (await import('./isolation.ts')).main(rest)
else if (process.argv[2] === 'shapes') await (await import('./shapes.ts')).main(rest)
else if (process.argv[2] === 'curves') await (await import('./curves.ts')).main(rest)
else await pipeline()
