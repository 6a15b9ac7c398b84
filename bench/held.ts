// npm run bench -- held: a session holds a snapshot (a dump, a report), so that dead rows cannot be removed. What does that cost?
import postgres from 'postgres'
import { onGround, redisOf, type Ground } from './ground.ts'
import { measure, type Figure, type Measured } from './measure.ts'
import { median } from './median.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { startAckbox, type Running, type Variant } from './variants.ts'

const help = `npm run bench -- held [options]

Round after round, by turns with and without a held snapshot: an empty database on which deliveries end, then the fast run
and the steady run, with the snapshot still held. Progress goes to stderr, the report to stdout as one line of JSON.

  --deliveries N    deliveries that end before the measurement              (200000)
  --mode MODE       redis or postgres: where BullMQ stores jobs             (redis)
  --tasks N         tasks of the fast run                                   (20000)
  --rate N          tasks a second of the steady run                        (500)
  --rounds N        pairs of runs; medians are reported                     (3)
  --quick           a tiny run that shows that it works
  --help

Goal: 0.8 of the rate without a snapshot or more, and p99 of the steady run of 15 ms or less.`

const goal = { ratio: 0.8, p99Ms: 15 }

export async function main(args: string[]): Promise<void> {
  const numbers = { deliveries: text, tasks: text, rate: text, rounds: text }
  const values = asked(args, { ...numbers, mode: { ...text, default: 'redis' }, quick: flag }, help)
  const { quick } = values
  const deliveries = whole('--deliveries', values.deliveries ?? (quick ? '1000' : '200000'))
  const mode = choice('--mode', values.mode, ['redis', 'postgres'])
  const tasks = whole('--tasks', values.tasks ?? (quick ? '300' : '20000'))
  const rate = whole('--rate', values.rate ?? '500')
  const rounds = whole('--rounds', values.rounds ?? (quick ? '1' : '3'))
  const amounts = {
    tasks,
    warm: deliveries,
    inFlight: 256,
    rate,
    rateSeconds: quick ? 1 : 20,
    settleMs: quick ? 200 : 1500
  }
  await onGround(quick, async ground => {
    const redisUrl = redisOf(ground, mode)
    const held = variant('held', async () => await holding(ground, 'bench_held', redisUrl))
    const free = variant('free', async () => await startAckbox(ground, 'bench_free', redisUrl))
    const results = new Map<Variant, Measured[]>([
      [held, []],
      [free, []]
    ])
    for (let turn = 1; turn <= rounds; turn++) {
      // Each is first equally often, in case the order matters.
      for (const one of turn % 2 === 1 ? [held, free] : [free, held]) {
        const measured = await measure(one, ground, amounts)
        const { tasksPerSecond, p99, lost } = measured
        console.error(
          `round ${turn}/${rounds}: ${one.name}: ${round(tasksPerSecond)} tasks/s, p99 at ${rate}/s ${p99.toFixed(1)} ms, lost ${lost}`
        )
        results.get(one)?.push(measured)
      }
    }
    const figures = resultOf(results.get(held) ?? [], results.get(free) ?? [])
    report({ bench: 'held', mode, deliveries, ...figures, tasks, rate, rounds })
  })
}

const variant = (name: string, start: Variant['start']): Variant => ({
  name,
  what: '',
  needsRedis: false,
  start
})

/** Ackbox on an empty database. A session holds a snapshot of it until it stops. */
async function holding(ground: Ground, name: string, redisUrl: string | undefined): Promise<Running> {
  const running = await startAckbox(ground, name, redisUrl)
  const holder = postgres(ground.urlOf(name), { max: 1, onnotice: () => {} })
  await holder.unsafe('begin isolation level repeatable read; select count(*) from task')
  return {
    ...running,
    async stop() {
      await holder.end({ timeout: 1 })
      await running.stop()
    }
  }
}

function resultOf(held: Measured[], free: Measured[]) {
  const middle = (of: Measured[], key: Figure, digits: number) =>
    round(median(of.map(one => one[key] ?? NaN)), digits)
  // The ratio is computed per round, so that a machine that slows down during the run changes it little.
  const ratio = median(held.map((one, turn) => one.tasksPerSecond / (free[turn]?.tasksPerSecond ?? NaN)))
  const sum = (key: 'lost' | 'duplicates' | 'refused') =>
    [...held, ...free].reduce((total, one) => total + one[key], 0)
  const p99 = median(held.map(one => one.p99))
  return {
    ratio: round(ratio, 3),
    heldP99Ms: round(p99, 2),
    freeP99Ms: middle(free, 'p99', 2),
    reached: ratio >= goal.ratio && p99 <= goal.p99Ms,
    heldPerSecond: middle(held, 'tasksPerSecond', 0),
    freePerSecond: middle(free, 'tasksPerSecond', 0),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused')
  }
}
