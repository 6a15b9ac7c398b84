// npm run bench -- old: the tables hold millions of ended tasks. How much do they slow down new tasks?
import { fillEnded } from './fill.ts'
import { onGround, redisOf } from './ground.ts'
import { measure, type Figure, type Measured } from './measure.ts'
import { median } from './median.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { emptyAckbox, runAckbox, startAckbox, type Variant } from './variants.ts'

const help = `npm run bench -- old [options]

Fills the tables once with ended tasks, each with its delivery and its attempt; then, round after round, measures the fast
run on them and on an empty database by turns. Progress goes to stderr, the report to stdout as one line of JSON.
5,000,000 tasks need about 6 GB in the folder for temporary files.

  --tasks-before N  ended tasks in the tables                               (5000000)
  --mode MODE       redis or postgres: where BullMQ stores jobs             (redis)
  --tasks N         tasks of the fast run, after as many to warm up         (20000)
  --rounds N        pairs of runs; medians are reported                     (5)
  --quick           a tiny run that shows that it works
  --help

Goal: 0.9 of the rate on an empty database or more.`

const filled = 'bench_old'

export async function main(args: string[]): Promise<void> {
  const values = asked(
    args,
    {
      'tasks-before': text,
      mode: { ...text, default: 'redis' },
      tasks: text,
      rounds: text,
      quick: flag
    },
    help
  )
  const { quick } = values
  const tasksBefore = whole('--tasks-before', values['tasks-before'] ?? (quick ? '5000' : '5000000'))
  const mode = choice('--mode', values.mode, ['redis', 'postgres'])
  const tasks = whole('--tasks', values.tasks ?? (quick ? '300' : '20000'))
  const rounds = whole('--rounds', values.rounds ?? (quick ? '1' : '5'))
  const amounts = {
    tasks,
    warm: tasks,
    inFlight: 256,
    rate: 200,
    rateSeconds: quick ? 1 : 10,
    settleMs: quick ? 200 : 1500
  }
  await onGround(quick, async (ground, signal) => {
    const redisUrl = redisOf(ground, mode)
    const url = await emptyAckbox(ground, filled)
    await fillEnded({ url, run: 'old', count: tasksBefore, signal })
    const old = variant('old', () => runAckbox(ground, filled, redisUrl))
    const empty = variant('empty', () => startAckbox(ground, 'bench_empty', redisUrl))
    const results = new Map<Variant, Measured[]>([
      [old, []],
      [empty, []]
    ])
    for (let turn = 1; turn <= rounds; turn++) {
      // Each is first equally often, in case the order matters.
      for (const one of turn % 2 === 1 ? [old, empty] : [empty, old]) {
        const measured = await measure(one, ground, amounts)
        const { tasksPerSecond, p99, lost } = measured
        console.error(
          `round ${turn}/${rounds}: ${one.name}: ${round(tasksPerSecond)} tasks/s, p99 ${p99.toFixed(1)} ms, lost ${lost}`
        )
        results.get(one)?.push(measured)
      }
    }
    report({
      bench: 'old',
      mode,
      tasksBefore,
      ...resultOf(results.get(old) ?? [], results.get(empty) ?? []),
      tasks,
      rounds
    })
  })
}

const variant = (name: string, start: Variant['start']): Variant => ({
  name,
  what: '',
  needsRedis: false,
  start
})

function resultOf(old: Measured[], empty: Measured[]) {
  const middle = (of: Measured[], key: Figure, digits: number) =>
    round(median(of.map(one => one[key] ?? NaN)), digits)
  // The ratio is computed per round, so that a machine that slows down during the run changes it little.
  const ratio = (key: Figure) =>
    median(old.map((one, turn) => (one[key] ?? NaN) / (empty[turn]?.[key] ?? NaN)))
  const sum = (key: 'lost' | 'duplicates' | 'refused') =>
    [...old, ...empty].reduce((total, one) => total + one[key], 0)
  return {
    ratio: round(ratio('tasksPerSecond'), 3),
    reached: ratio('tasksPerSecond') >= 0.9,
    oldPerSecond: middle(old, 'tasksPerSecond', 0),
    emptyPerSecond: middle(empty, 'tasksPerSecond', 0),
    p99Ratio: round(ratio('p99'), 2),
    oldP99Ms: middle(old, 'p99', 2),
    emptyP99Ms: middle(empty, 'p99', 2),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused')
  }
}
