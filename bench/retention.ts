// npm run bench -- retention: old tasks are removed while new ones come in. How much slower are those, and is disk space freed?
import { listPartitions, oldestYoung, partitioned } from '../src/db/partitions.ts'
import { openDb, type Sql } from '../src/db/pool.ts'
import { uuidAt } from '../src/domain/ids.ts'
import { fillEnded } from './fill.ts'
import { onGround, redisOf, type Ground } from './ground.ts'
import { measure, type Measured } from './measure.ts'
import { median } from './median.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { emptyAckbox, runAckbox, type Variant } from './variants.ts'

const help = `npm run bench -- retention [options]

Fills the tables with ended tasks of several days, with a partition of attempts for each day. Then it measures twice: with
nothing to remove, and with RETENTION_DAYS=1, which removes nearly all of them meanwhile. Progress goes to stderr, the
report to stdout as one line of JSON.

  --days N      days that are filled                                   (10)
  --tasks-a-day N                                                      (20000)
  --mode MODE   redis or postgres: where BullMQ stores jobs            (redis)
  --tasks N     tasks of the fast run, after as many to warm up        (20000)
  --rounds N    rounds; medians are reported                           (3)
  --quick       a tiny run that shows that it works
  --help

Goal: p99 at a steady rate at most twice that without retention.`

const name = 'bench_retention'
const dayMs = 86_400_000
const patienceMs = 300_000

interface Round {
  without: Measured
  beside: Measured
  /** The size of the tables of attempts and receipts. */
  mbBefore: number
  mbAfter: number
  dropped: number
  /** From the end of the load until all old partitions are gone. */
  restSeconds: number
}

export async function main(args: string[]): Promise<void> {
  const words = {
    days: text,
    'tasks-a-day': text,
    mode: { ...text, default: 'redis' },
    tasks: text,
    rounds: text
  }
  const values = asked(args, { ...words, quick: flag }, help)
  const { quick } = values
  const days = whole('--days', values.days ?? (quick ? '3' : '10'))
  const tasksADay = whole('--tasks-a-day', values['tasks-a-day'] ?? (quick ? '1000' : '20000'))
  const mode = choice('--mode', values.mode, ['redis', 'postgres'])
  const tasks = whole('--tasks', values.tasks ?? (quick ? '300' : '20000'))
  const rounds = whole('--rounds', values.rounds ?? (quick ? '1' : '3'))
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
    const results: Round[] = []
    for (let turn = 1; turn <= rounds; turn++) {
      const url = await emptyAckbox(ground, name)
      const sql = openDb(url, { max: 1, statementTimeoutMs: 60_000 })
      try {
        await daily(sql, days)
        await fillEnded({ url, run: `day-${turn}`, count: days * tasksADay, signal }, days)
        const one = await compare(sql, ground, redisUrl, amounts)
        console.error(
          `round ${turn}/${rounds}: p99 ${one.without.p99.toFixed(1)} ms, beside retention ${one.beside.p99.toFixed(1)} ms, ` +
            `${one.dropped} partitions dropped, ${one.mbBefore} MB -> ${one.mbAfter} MB`
        )
        results.push(one)
      } finally {
        await sql.end({ timeout: 5 })
      }
    }
    report({ bench: 'retention', mode, days, tasksADay, ...resultOf(results), tasks, rounds })
  })
}

async function compare(
  sql: Sql,
  ground: Ground,
  redisUrl: string | undefined,
  amounts: Parameters<typeof measure>[2]
): Promise<Round> {
  const variant = (retentionDays: number): Variant => ({
    name: `RETENTION_DAYS=${retentionDays}`,
    what: '',
    needsRedis: false,
    start: () => runAckbox(ground, name, redisUrl, { RETENTION_DAYS: String(retentionDays) })
  })
  const without = await measure(variant(36_500), ground, amounts)
  const oldest = await oldestYoung(sql, 1)
  const due = async () => (await listPartitions(sql)).filter(({ high }) => high <= oldest).length
  const [mbBefore, dropped] = [await megabytes(sql), await due()]
  const beside = await measure(variant(1), ground, amounts)
  // That process has been stopped, so another one finishes the removal.
  const began = performance.now()
  const rest = await variant(1).start(ground)
  try {
    while ((await due()) > 0) {
      if (performance.now() - began > patienceMs) throw new Error('retention did not finish')
      await new Promise(resolve => setTimeout(resolve, 200))
    }
    const restSeconds = (performance.now() - began) / 1000
    return { without, beside, mbBefore, mbAfter: await megabytes(sql), dropped, restSeconds }
  } finally {
    await rest.stop()
  }
}

/** Makes the partitions that a service would have after this many days. */
async function daily(sql: Sql, days: number): Promise<void> {
  const today = Math.floor(Date.now() / dayMs)
  const first = uuidAt(new Date((today - days - 1) * dayMs))
  for (const parent of partitioned) {
    await sql.unsafe(`alter table ${parent} detach partition ${parent}_first`)
    await sql.unsafe(
      `alter table ${parent} attach partition ${parent}_first for values from (minvalue) to ('${first}')`
    )
    for (let day = today - days - 1; day <= today + 1; day++)
      await sql`select make_partition(${parent}, ${uuidAt(new Date(day * dayMs))}::uuid)`
  }
}

async function megabytes(sql: Sql): Promise<number> {
  const [row] = await sql<[{ mb: number }]>`
    select coalesce(sum(pg_total_relation_size(to_regclass(name))), 0)::float8 / 1e6 as mb
    from unnest(array['attempt', 'receipt']) p (parent) cross join lateral partitions_of(parent)`
  return round(row.mb, 1)
}

function resultOf(results: readonly Round[]) {
  const middle = (of: (one: Round) => number, digits: number) => round(median(results.map(of)), digits)
  const ratio = middle(one => one.beside.p99 / one.without.p99, 2)
  const sum = (key: 'lost' | 'duplicates' | 'refused') =>
    results.reduce((total, { without, beside }) => total + without[key] + beside[key], 0)
  return {
    p99Ratio: ratio,
    reached: ratio <= 2,
    besideP99Ms: middle(one => one.beside.p99, 2),
    withoutP99Ms: middle(one => one.without.p99, 2),
    rateRatio: middle(one => one.beside.tasksPerSecond / one.without.tasksPerSecond, 3),
    partitionsDropped: middle(one => one.dropped, 0),
    mbBefore: middle(one => one.mbBefore, 1),
    mbAfter: middle(one => one.mbAfter, 1),
    restSeconds: middle(one => one.restSeconds, 1),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused')
  }
}
