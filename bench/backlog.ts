// npm run bench -- backlog: a large backlog of due deliveries, with new tasks coming in. How fast does it drain, and at what cost?
import { drawDrain } from './curve.ts'
import { ackbox, drain, textbook, type DrainAmounts, type Drained } from './drain.ts'
import { onGround, redisOf, type Ground } from './ground.ts'
import { measure, type Amounts, type Measured } from './measure.ts'
import { median } from './median.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { variants } from './variants.ts'

const help = `npm run bench -- backlog [options]

Fills PostgreSQL with due deliveries while nothing runs, starts Ackbox on them and posts new tasks at a steady rate while
it drains them. The same run also measures the fast run and the same steady rate on an empty database, to compare. Progress
goes to stderr, the report to stdout as one line of JSON, the drain as a curve to drain.json and drain.svg. The accept p99
leaves out the first 5 s, since the normal p99 is that of a warm process; the p99 of the start is reported separately.

  --due N           deliveries that wait                                     (1000000)
  --mode MODE       redis or postgres: where BullMQ stores jobs; or textbook (redis)
  --textbook-due N  the same for textbook, whose backlog is also in Redis    (100000)
  --seconds N       the drain is watched at most this long                   (60)
  --rate N          POSTs a second meanwhile                                 (200)
  --tasks N         tasks of the fast run, after as many to warm up          (20000)
  --rounds N        rounds; medians are reported                             (1)
  --plots FOLDER    where the curve is written; each mode has its own        (docs/plots)
  --quick           a tiny run that shows that it works; draws nothing without --plots
  --help

rssMb is the peak memory of the service's process (VmHWM). memoryMb is the memory of PostgreSQL and Redis with all their
processes; shared memory counts once (PSS, sampled every 10 s).

Goals: drain at 0.8 of the fast run or more, for arrivals and for deliveries recorded as handled; accept p99 at most 2 times
the normal one; Redis at most 64 MB, a process of Ackbox at most 256 MB.`

const modes = {
  redis: ackbox('ackbox-redis', 'redis'),
  postgres: ackbox('ackbox-postgres', 'postgres'),
  textbook
}

interface Turn {
  fresh: Measured
  drained: Drained
}

export async function main(args: string[]): Promise<void> {
  const values = asked(
    args,
    {
      due: text,
      mode: { ...text, default: 'redis' },
      'textbook-due': text,
      seconds: text,
      rate: { ...text, default: '200' },
      tasks: text,
      rounds: { ...text, default: '1' },
      plots: text,
      quick: flag
    },
    help
  )
  const { quick, plots = quick ? undefined : 'docs/plots' } = values
  const mode = choice('--mode', values.mode, ['redis', 'postgres', 'textbook'])
  const due = whole('--due', values.due ?? (quick ? '3000' : '1000000'))
  const textbookDue = whole('--textbook-due', values['textbook-due'] ?? (quick ? '1000' : '100000'))
  const rate = whole('--rate', values.rate)
  const tasks = whole('--tasks', values.tasks ?? (quick ? '300' : '20000'))
  const amounts = {
    due: mode === 'textbook' ? textbookDue : due,
    seconds: whole('--seconds', values.seconds ?? (quick ? '2' : '60')),
    rate
  }
  const fresh = {
    tasks,
    warm: tasks,
    inFlight: 256,
    rate,
    rateSeconds: quick ? 1 : 20,
    settleMs: quick ? 200 : 1500
  }
  const rounds = whole('--rounds', values.rounds)
  await onGround(quick, async (ground, signal) => {
    redisOf(ground, mode === 'textbook' ? 'redis' : mode) // throws without the Redis that the mode needs
    const turns: Turn[] = []
    for (let turn = 1; turn <= rounds; turn++) {
      console.error(`round ${turn}/${rounds}: ${mode}`)
      turns.push(await oneTurn(ground, mode, amounts, fresh, signal))
    }
    const last = turns.at(-1)
    if (plots !== undefined && last)
      await drawDrain(plots, mode, { due: amounts.due, curve: last.drained.curve })
    report(resultOf(mode, amounts, turns))
  })
}

async function oneTurn(
  ground: Ground,
  mode: keyof typeof modes,
  amounts: DrainAmounts,
  ofFresh: Amounts,
  signal: AbortSignal
): Promise<Turn> {
  const what = modes[mode]
  const variant = variants.find(({ name }) => name === what.name)
  if (!variant) throw new Error(`no variant ${what.name}`)
  const fresh = await measure(variant, ground, ofFresh)
  console.error(
    `  empty: ${round(fresh.tasksPerSecond)} tasks/s, accept p99 ${fresh.acceptP99.toFixed(1)} ms, lost ${fresh.lost}`
  )
  const drained = await drain(ground, what, amounts, signal)
  console.error(
    `  backlog: ${round(drained.perSecond)} tasks/s, accept p99 ${drained.acceptP99.toFixed(1)} ms, lost ${drained.lost}`
  )
  return { fresh, drained }
}

function resultOf(mode: string, { due, seconds, rate }: DrainAmounts, turns: Turn[]) {
  const middle = (value: (turn: Turn) => number, digits = 0) => round(median(turns.map(value)), digits)
  const sum = (key: 'lost' | 'duplicates' | 'refused') =>
    turns.reduce((total, { fresh, drained }) => total + fresh[key] + drained[key], 0)
  const highest = (value: (turn: Turn) => number) => round(Math.max(...turns.map(value)), 1)
  const parts = Object.keys(turns[0]?.drained.memoryMb ?? {})
  const measured = {
    drainRatio: middle(({ fresh, drained }) => drained.perSecond / fresh.tasksPerSecond, 3),
    // Deliveries that arrive faster than they are recorded pile up in memory, and are sent again once their lease ends.
    recordedRatio: middle(({ fresh, drained }) => drained.recordedPerSecond / fresh.tasksPerSecond, 3),
    acceptP99Ratio: middle(({ fresh, drained }) => drained.acceptP99 / fresh.acceptP99, 2),
    redisMb: highest(({ drained }) => drained.redisMb),
    rssMb: highest(({ drained }) => drained.rssMb),
    memoryMb: Object.fromEntries(
      parts.map(what => [what, highest(({ drained }) => drained.memoryMb[what] ?? 0)])
    )
  }
  return {
    bench: 'backlog',
    mode,
    due,
    ...measured,
    reached: {
      drain: measured.drainRatio >= 0.8 && measured.recordedRatio >= 0.8,
      accept: measured.acceptP99Ratio <= 2,
      redis: measured.redisMb <= 64,
      memory: measured.rssMb <= 256
    },
    drainPerSecond: middle(({ drained }) => drained.perSecond),
    recordedPerSecond: middle(({ drained }) => drained.recordedPerSecond),
    unrecorded: middle(({ drained }) => drained.unrecorded),
    secondHalfPerSecond: middle(({ drained }) => drained.secondHalfPerSecond),
    freshPerSecond: middle(({ fresh }) => fresh.tasksPerSecond),
    acceptP99Ms: middle(({ drained }) => drained.acceptP99, 2),
    startAcceptP99Ms: middle(({ drained }) => drained.startAcceptP99, 2),
    normalAcceptP99Ms: middle(({ fresh }) => fresh.acceptP99, 2),
    drainSeconds: middle(({ drained }) => drained.seconds, 1),
    seconds,
    rate,
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused'),
    rounds: turns.length
  }
}
