// npm run bench: measures Ackbox, the fastest possible relay and a usual implementation, at the same time on the same machine.
import { onGround, type Ground } from './ground.ts'
import { median } from './median.ts'
import { measure, type Amounts, type Figure, type Measured } from './measure.ts'
import { asked, chosen, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { variants, type Variant } from './variants.ts'

const help = `npm run bench -- [options]
npm run bench -- transports [options]    clients of queues; see its own --help
npm run bench -- soak [options]          twice its capacity for minutes: memory, refusals, age of the backlog
npm run bench -- isolation [options]     ten downstreams, one of which never answers: how much the others slow down
npm run bench -- shapes [options]        receipts, batches, many downstreams, several processes
npm run bench -- curves [options]        throughput by POSTs in flight, latency by rate, drawn
npm run bench -- keys [options]          ordering keys: a thousand, and one that is hot
npm run bench -- backlog [options]       a million deliveries wait: drain, accepts meanwhile, memory
npm run bench -- old [options]           five million ended tasks in the tables: what they cost
npm run bench -- held [options]          a snapshot that is held while deliveries end: what it costs
npm run bench -- pages [options]         ten million tasks in the tables: how fast each page of the dashboard is
npm run bench -- dashboards [options]    twenty dashboards open during full load
npm run bench -- retention [options]     old tasks are removed during full load: p99, and the disk space that is freed
npm run bench -- upgrade [options]       the migrations of an upgrade on full tables: what they lock, and how long
npm run bench -- outbox [options]        tasks enqueued by SQL compared with posted ones, and how soon they arrive
npm run bench -- recovery [options]      a worker is killed: when the last of its deliveries arrives
npm run bench -- against COMMIT          this version and another one by turns, and their ratio
npm run bench -- quick                   a tiny run of each, to check that they work

Runs each variant alone, one after the other, round after round, on a new PostgreSQL and a new Redis.
Progress and a table go to stderr; stdout gets one line of JSON for each variant, with its ratio to the relay.

${variants.map(({ name, what }) => `  ${name.padEnd(25)} ${what}`).join('\n')}

  --tasks N      tasks of a round, as fast as answers come   (20000)
  --warm N       tasks before each round, to warm up, since services run for days (as many again)
  --rounds N     rounds; medians are reported                (3)
  --in-flight N  POSTs in flight, one connection each        (256)
  --rate N       tasks a second of the latency part          (200)
  --only A,B     these variants only
  --quick        a tiny run that shows that all of it works
  --help

redisCallsPerTask counts Redis's reads from its clients (total_reads_processed): commands that were sent together count
once. rssMb is the peak memory of Ackbox's process (VmHWM), including shared memory.

BENCH_PIPELINING=50 sets limit.pipelining of Ackbox's downstreams in the benchmarks without -pipelined variants, never the relay's.
BENCH_CONCURRENCY=50 sets limit.concurrency of the downstream of plain tasks (200).
BENCH_NODE='--cpu-prof …' adds flags of Node for Ackbox, for example to profile it.`

const total = ({ cpuMsPerTask }: Measured) => Object.values(cpuMsPerTask).reduce((sum, ms) => sum + ms, 0)

function options() {
  const numbers = { tasks: text, warm: text, rounds: text, 'in-flight': text, rate: text }
  const values = asked(process.argv.slice(2), { ...numbers, only: text, quick: flag }, help)
  const { quick } = values
  const these = chosen(variants, values.only)
  return {
    quick,
    amounts: {
      tasks: whole('--tasks', values.tasks ?? (quick ? '300' : '20000')),
      warm: whole('--warm', values.warm ?? (quick ? '100' : (values.tasks ?? '20000'))),
      inFlight: whole('--in-flight', values['in-flight'] ?? '256'),
      rate: whole('--rate', values.rate ?? '200'),
      rateSeconds: quick ? 1 : 10,
      settleMs: quick ? 200 : 1500
    },
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '3')),
    these: variants.filter(one => these.includes(one) || one.name === 'relay')
  }
}

async function compare(ground: Ground, these: Variant[], rounds: number, amounts: Amounts) {
  const results = new Map<string, Measured[]>(these.map(({ name }) => [name, []]))
  for (let turn = 1; turn <= rounds; turn++) {
    for (const variant of these) {
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

function resultOf(name: string, measured: Measured[], baseline: Measured[], { tasks, rate }: Amounts) {
  const of = (key: Figure, digits: number) => round(median(measured.map(one => one[key] ?? NaN)), digits)
  const parts = Object.keys(measured[0]?.cpuMsPerTask ?? {})
  const part = (what: string) => round(median(measured.map(one => one.cpuMsPerTask[what] ?? NaN)), 3)
  const sum = (key: 'lost' | 'duplicates' | 'refused') => measured.reduce((all, one) => all + one[key], 0)
  // The ratio is computed per round, so that a machine that slows down during the run changes it little.
  const ratio = median(
    measured.map((one, turn) => one.tasksPerSecond / (baseline[turn]?.tasksPerSecond ?? NaN))
  )
  return {
    bench: name,
    ratio: round(ratio, 3),
    tasksPerSecond: of('tasksPerSecond', 0),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused'),
    p50Ms: of('p50', 2),
    p99Ms: of('p99', 2),
    cpuMsPerTask: round(median(measured.map(total)), 3),
    cpuMsPerTaskOf: Object.fromEntries(parts.map(what => [what, part(what)])),
    statementsPerTask: of('statementsPerTask', 3),
    commitsPerTask: of('commitsPerTask', 3),
    walBytesPerTask: of('walBytesPerTask', 0),
    redisCallsPerTask: of('redisCallsPerTask', 3),
    rssMb: name.startsWith('ackbox') ? round(median(measured.map(one => one.rssMb['service'] ?? NaN))) : null,
    rounds: measured.length,
    tasks,
    rate
  }
}

async function pipeline(): Promise<void> {
  const { quick, amounts, rounds, these } = options()
  await onGround(quick, async ground => {
    const possible = these.filter(({ name, needsRedis }) => {
      if (!needsRedis || ground.redisUrl !== undefined) return true
      console.error(`skipped: ${name}, since there is no redis-server on the path`)
      return false
    })
    const results = await compare(ground, possible, rounds, amounts)
    for (const [name, measured] of results)
      report(resultOf(name, measured, results.get('relay') ?? [], amounts))
  })
}

const others: Record<string, () => Promise<{ main(args: string[]): Promise<void> }>> = {
  against: () => import('./against.ts'),
  backlog: () => import('./backlog.ts'),
  curves: () => import('./curves.ts'),
  dashboards: () => import('./dashboards.ts'),
  held: () => import('./held.ts'),
  isolation: () => import('./isolation.ts'),
  keys: () => import('./keys.ts'),
  old: () => import('./old.ts'),
  outbox: () => import('./outbox.ts'),
  pages: () => import('./pages.ts'),
  quick: () => import('./quick.ts'),
  recovery: () => import('./recovery.ts'),
  retention: () => import('./retention.ts'),
  shapes: () => import('./shapes.ts'),
  soak: () => import('./soak.ts'),
  transports: () => import('./transports.ts'),
  upgrade: () => import('./upgrade.ts')
}
const [name = '', ...rest] = process.argv.slice(2)
const other = others[name]
// The benchmarks of variants have variants for pipelining.
if (!other || name === 'curves') delete process.env['BENCH_PIPELINING']
await (other ? (await other()).main(rest) : pipeline())
