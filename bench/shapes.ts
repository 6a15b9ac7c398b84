// npm run bench -- shapes: other ways to use Ackbox than one task a POST to one downstream, each compared with a fair
// baseline, turn by turn.
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { statusNumber } from '../src/domain/types.ts'
import { onGround, redisOf, type Ground } from './ground.ts'
import { fullLoad, type Full } from './measure.ts'
import { median } from './median.ts'
import { asked, choice, chosen, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { shapes, type Setup, type Shape } from './shape.ts'
import { discard } from './variants.ts'

type Turn = Full & { deliveriesPerSecond: number }

const help = `npm run bench -- shapes [options]

Other ways to use Ackbox, each compared with its own baseline, by turns, each turn on an empty database. One line of JSON
for each on stdout; its ratio is the median of the ratios of the rounds.

${shapes.map(({ name, what }) => `  ${name.padEnd(10)} ${what}`).join('\n')}

  --tasks N      deliveries of a turn, as fast as answers come     (20000)
  --warm N       deliveries before each turn, to warm up           (as many again)
  --rounds N     pairs of turns; medians are reported              (5)
  --in-flight N  POSTs in flight, except for batch                 (256)
  --only A,B     these shapes only
  --mode MODE    where BullMQ stores jobs: redis, postgres or either (either: redis, if there is a redis-server)
  --quick        a tiny run that shows that all of it works
  --help

lost counts deliveries that did not arrive, or that arrived but are not HANDLED in PostgreSQL. redisCallsPerTask counts
Redis's reads from its clients (total_reads_processed): commands that were sent together count once, those inside a script
do not count. rssMb is the peak memory of each process of Ackbox (VmHWM), including shared memory.`

interface Amounts {
  tasks: number
  warm: number
  inFlight: number
  settleMs: number
  rounds: number
}

export async function main(args: string[]): Promise<void> {
  const values = asked(
    args,
    {
      tasks: text,
      warm: text,
      rounds: text,
      'in-flight': text,
      only: text,
      mode: text,
      quick: flag
    },
    help
  )
  const { quick } = values
  const amounts: Amounts = {
    tasks: whole('--tasks', values.tasks ?? (quick ? '400' : '20000')),
    warm: whole('--warm', values.warm ?? (quick ? '100' : (values.tasks ?? '20000'))),
    inFlight: whole('--in-flight', values['in-flight'] ?? '256'),
    settleMs: quick ? 200 : 1_500,
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '5'))
  }
  const these = chosen(shapes, values.only)
  const mode = choice('--mode', values.mode ?? 'either', ['redis', 'postgres', 'either'])
  await onGround(quick, async ground => {
    const redisUrl = redisOf(ground, mode)
    const pairs = new Map(these.map(({ name }) => [name, [] as Pair[]]))
    for (let nth = 1; nth <= amounts.rounds; nth++)
      for (const shape of these) {
        const pair = await compare(ground, redisUrl, shape, amounts, nth)
        pairs.get(shape.name)?.push(pair)
      }
    for (const shape of these) {
      const queue = redisUrl === undefined ? 'postgres' : 'redis'
      report({ ...resultOf(shape, pairs.get(shape.name) ?? []), queue })
    }
  })
}

interface Pair {
  subject: Turn
  baseline: Turn
}

/** Subject and baseline are each first equally often, in case the order matters. */
async function compare(
  ground: Ground,
  redisUrl: string | undefined,
  { name, ...shape }: Shape,
  amounts: Amounts,
  nth: number
): Promise<Pair> {
  const run = async (who: 'subject' | 'baseline') => {
    console.error(`round ${nth}/${amounts.rounds}, ${name}: ${shape[who].name}`)
    return say(await turn(ground, redisUrl, shape[who], amounts))
  }
  if (nth % 2 === 1) {
    const subject = await run('subject')
    return { subject, baseline: await run('baseline') }
  }
  const baseline = await run('baseline')
  return { subject: await run('subject'), baseline }
}

function say(measured: Turn): Turn {
  const { tasksPerSecond, lost, duplicates, refused } = measured
  console.error(
    `  ${Math.round(tasksPerSecond)} tasks/s, lost ${lost}, duplicates ${duplicates}, refused ${refused}`
  )
  return measured
}

async function turn(
  ground: Ground,
  redisUrl: string | undefined,
  { way: { inFlight, ...way }, start }: Setup,
  amounts: Amounts
): Promise<Turn> {
  await ground.emptyRedis()
  const running = await start(ground, redisUrl)
  try {
    const each = way.each ?? 1
    const [tasks, warm] = [Math.ceil(amounts.tasks / each), Math.ceil(amounts.warm / each)]
    const { settleMs } = amounts
    const full = await fullLoad(
      running,
      ground,
      { tasks, warm, settleMs, inFlight: inFlight ?? amounts.inFlight },
      way
    )
    const unhandled =
      running.database === undefined
        ? 0
        : await missing(ground.urlOf(running.database), (tasks + warm - full.refused) * each)
    return {
      ...full,
      lost: Math.max(full.lost, unhandled),
      deliveriesPerSecond: full.tasksPerSecond * each
    }
  } finally {
    await discard(running)
  }
}

/** How many of so many deliveries are not HANDLED in PostgreSQL, soon after they were. */
async function missing(url: string, expected: number): Promise<number> {
  const sql = postgres(url, { max: 1 })
  try {
    for (let left = 50; ; left--, await sleep(200)) {
      const [row] = await sql<{ n: number }[]>`
        select count(*)::float8 as n from delivery where status = ${statusNumber.HANDLED}`
      const absent = expected - (row?.n ?? 0)
      if (absent <= 0 || left === 0) return Math.max(0, absent)
    }
  } finally {
    await sql.end({ timeout: 5 })
  }
}

function resultOf({ name, subject, baseline }: Shape, pairs: Pair[]) {
  const turns = pairs.map(pair => pair.subject)
  const of = (value: (one: Turn) => number | undefined, digits: number) =>
    round(median(turns.map(one => value(one) ?? NaN)), digits)
  const parts = (value: (one: Turn) => Record<string, number>, digits: number) =>
    Object.fromEntries(
      Object.keys(turns[0] ? value(turns[0]) : {}).map(what => [what, of(one => value(one)[what], digits)])
    )
  const sum = (key: 'lost' | 'duplicates' | 'refused') =>
    pairs.reduce((total, pair) => total + pair.subject[key] + pair.baseline[key], 0)
  return {
    bench: `shape ${name}`,
    ratio: round(
      median(pairs.map(pair => pair.subject.deliveriesPerSecond / pair.baseline.deliveriesPerSecond)),
      3
    ),
    baseline: baseline.name,
    tasksPerSecond: of(one => one.tasksPerSecond, 0),
    deliveriesPerSecond: of(one => one.deliveriesPerSecond, 0),
    baselinePerSecond: round(median(pairs.map(pair => pair.baseline.tasksPerSecond)), 0),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused'),
    rounds: pairs.length,
    pipelining: Number(process.env['BENCH_PIPELINING'] ?? 1),
    ...subject.way,
    cpuMsPerTaskOf: parts(one => one.cpuMsPerTask, 3),
    statementsPerTask: of(one => one.statementsPerTask, 3),
    commitsPerTask: of(one => one.commitsPerTask, 3),
    walBytesPerTask: of(one => one.walBytesPerTask, 0),
    redisCallsPerTask: of(one => one.redisCallsPerTask, 3),
    rssMb: parts(one => one.rssMb, 0)
  }
}
