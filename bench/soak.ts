// npm run bench -- soak: twice its capacity, for minutes. Is its memory bounded, and are old deliveries sent before new ones?
import { writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import postgres from 'postgres'
import { start } from './child.ts'
import type { FloodCount } from './flood.ts'
import { onGround, type Ground } from './ground.ts'
import { memoryMb, secondHalf } from './memory.ts'
import { asked, flag, positive, text } from './options.ts'
import { round } from './report.ts'
import { variants, type Running } from './variants.ts'

const help = `npm run bench -- soak [options]

Measures the capacity of Ackbox, then posts twice as much in an open loop and takes samples.
Progress goes to stderr, the report to stdout as JSON, and as Markdown to --report.

  --minutes N    how long            (10)
  --times N      times its capacity  (2)
  --report FILE  the report as Markdown
  --quick        a tiny run that shows that it works`

interface Sample {
  second: number
  accepted: number
  refused: number
  heldBack: number
  arrived: number
  oldestDueSeconds: number
  memory: Record<string, number>
}

export interface SoakReport {
  bench: 'soak'
  minutes: number
  capacity: number
  offeredPerSecond: number
  acceptedPerSecond: number
  refusedPerSecond: number
  heldBackPerSecond: number
  broken: number
  arrivedPerSecond: number
  /** The largest age of the oldest due delivery, as a multiple of backlog ÷ throughput at that moment. Goal: at most 2. */
  oldestDueRatio: number
  oldestDueSeconds: number
  backlog: number
  /** Answered 2xx, but not in the table. */
  missing: number
  memory: Record<
    string,
    { firstMb: number; highestMb: number; meanMb: number; riseMb: number; flat: boolean }
  >
  flat: boolean
  cores: number
  node: string
}

export async function main(args: string[]): Promise<void> {
  const options = { minutes: text, times: text, report: text, quick: flag }
  const values = asked(args, options, help)
  const { quick } = values
  const minutes = positive('--minutes', values.minutes ?? '10')
  const times = positive('--times', values.times ?? '2')
  const amounts = { seconds: quick ? 6 : minutes * 60, times, warm: quick ? 300 : 20_000 }
  await onGround(quick, async (ground, signal) => {
    const report = await soak(ground, amounts, signal)
    console.log(JSON.stringify(report))
    if (values.report !== undefined) {
      const command = ['npm run bench -- soak', ...args].join(' ')
      writeFileSync(values.report, markdown(report, command))
    }
    if (report.missing > 0 || report.broken > 0) process.exitCode = 1
  })
}

interface Amounts {
  seconds: number
  times: number
  warm: number
}

async function soak(
  ground: Ground,
  { seconds, times, warm }: Amounts,
  signal: AbortSignal
): Promise<SoakReport> {
  const name = ground.redisUrl === undefined ? 'ackbox-postgres' : 'ackbox-redis'
  const running = await variants.find(variant => variant.name === name)?.start(ground)
  if (!running) throw new Error(`no variant ${name}`)
  const flood = await start('./flood.js')
  try {
    await rateOf(ground, running, 'warm', warm)
    const capacity = await rateOf(ground, running, 'capacity', warm)
    const rate = capacity * times
    console.error(`capacity ${round(capacity)} tasks/s; posting ${round(rate)}/s for ${seconds} s`)
    await ground.sink.ask({ kind: 'expect', run: 'soak', tasks: Math.ceil(rate * seconds) })
    const connections = 512
    await flood.ask({ kind: 'start', target: running.url, run: 'soak', rate, seconds, connections })
    const samples = await watch(ground, running, { ask: () => flood.ask({ kind: 'count' }) }, seconds, signal)
    const count = (await flood.ask({ kind: 'count' })) as FloodCount
    return {
      ...judge(samples, count),
      capacity: round(capacity),
      missing: await missing(ground, running, count)
    }
  } finally {
    await flood.stop()
    await running.stop()
  }
}

/** Tasks a second, from the first POST to the last arrival. */
async function rateOf(ground: Ground, { url: target }: Running, run: string, tasks: number): Promise<number> {
  await ground.sink.ask({ kind: 'expect', run, tasks })
  const began = performance.now()
  await ground.load.ask({ target, run, tasks, inFlight: 256 })
  while ((await ground.sink.ask({ kind: 'count' })) !== tasks) {
    if (performance.now() - began > 120_000)
      throw new Error(`${run}: not all of ${tasks} tasks arrived in 120 s`)
    await sleep(5)
  }
  return (tasks * 1000) / (performance.now() - began)
}

async function watch(
  ground: Ground,
  running: Running,
  flood: { ask: () => Promise<unknown> },
  seconds: number,
  signal: AbortSignal
): Promise<Sample[]> {
  const sql = postgres(ground.urlOf(running.database ?? ''), { max: 1 })
  const samples: Sample[] = []
  const began = performance.now()
  const everySeconds = Math.min(2, seconds / 10)
  try {
    for (let over = false; !over && !signal.aborted;) {
      await sleep(everySeconds * 1000)
      const count = (await flood.ask()) as FloodCount
      const arrived = (await ground.sink.ask({ kind: 'count' })) as number
      const [due] = await sql<{ seconds: number }[]>`
        select extract(epoch from now() - next_action_at)::float8 as seconds from delivery
        where status = 0 and phase = 'WAITING' and downstream = 'bench-sink' and next_action_at <= now()
        order by next_action_at limit 1`
      over = count.over
      const sample = {
        second: (performance.now() - began) / 1000,
        ...count,
        arrived,
        oldestDueSeconds: due?.seconds ?? 0,
        memory: Object.fromEntries(Object.entries(running.pids).map(([what, pid]) => [what, memoryMb(pid)]))
      }
      samples.push(sample)
      if (samples.length % 5 === 0) say(sample)
    }
  } finally {
    await sql.end({ timeout: 5 })
  }
  return samples
}

function say({ second, accepted, refused, heldBack, arrived, oldestDueSeconds, memory }: Sample): void {
  const mb = Object.entries(memory).map(([what, value]) => `${what} ${round(value)} MB`)
  console.error(
    `${round(second)} s: accepted ${accepted}, refused ${refused}, held back ${heldBack}, arrived ${arrived}, ` +
      `oldest due ${oldestDueSeconds.toFixed(1)} s, ${mb.join(', ')}`
  )
}

function judge(samples: Sample[], count: FloodCount): Omit<SoakReport, 'capacity' | 'missing'> {
  const last = samples.at(-1)
  if (!last) throw new Error('interrupted before the first sample')
  const perSecond = (n: number) => round(n / last.second)
  const ratios = samples.slice(10).map((sample, i) => {
    const before = samples[i] as Sample
    const throughput = (sample.arrived - before.arrived) / (sample.second - before.second)
    const backlog = sample.accepted - sample.arrived
    // An age below a second depends on the interval of the dispatcher, not on the backlog.
    return sample.oldestDueSeconds < 1 ? 0 : (sample.oldestDueSeconds * throughput) / Math.max(1, backlog)
  })
  const memory = Object.fromEntries(
    Object.keys(last.memory).map(what => {
      const values = samples.map(sample => sample.memory[what] ?? 0)
      const { mean, rise } = secondHalf(values)
      const numbers = { firstMb: values[0] ?? 0, highestMb: Math.max(...values), meanMb: mean, riseMb: rise }
      const rounded = Object.fromEntries(
        Object.entries(numbers).map(([key, value]) => [key, round(value, 1)])
      )
      return [what, { ...(rounded as typeof numbers), flat: rise <= mean / 10 }]
    })
  )
  return {
    bench: 'soak',
    minutes: round(last.second / 60, 1),
    offeredPerSecond: perSecond(count.due),
    acceptedPerSecond: perSecond(count.accepted),
    refusedPerSecond: perSecond(count.refused),
    heldBackPerSecond: perSecond(count.heldBack),
    broken: count.broken,
    arrivedPerSecond: perSecond(last.arrived),
    oldestDueRatio: round(Math.max(0, ...ratios), 2),
    oldestDueSeconds: round(Math.max(...samples.map(sample => sample.oldestDueSeconds)), 1),
    backlog: last.accepted - last.arrived,
    memory,
    flat: memory['service']?.flat ?? false,
    cores: availableParallelism(),
    node: process.version
  }
}

/** Each task that was answered 2xx must have a row. More rows than that are answers that came too late for the producer. */
async function missing(ground: Ground, running: Running, { accepted }: FloodCount): Promise<number> {
  const sql = postgres(ground.urlOf(running.database ?? ''), { max: 1 })
  try {
    const [row] = await sql<
      { n: number }[]
    >`select count(*)::float8 as n from task where task_no like 'soak-%'`
    return Math.max(0, accepted - (row?.n ?? 0))
  } finally {
    await sql.end({ timeout: 5 })
  }
}

function markdown(report: SoakReport, command: string): string {
  const { memory, ...rest } = report
  const rows = Object.entries(rest).map(([name, value]) => `| ${name} | ${value} |`)
  const parts = Object.entries(memory).map(([what, one]) => `| ${what} | ${Object.values(one).join(' | ')} |`)
  return [
    '# Soak',
    '',
    `    ${command}`,
    '',
    `Memory of the service in the second half was ${report.flat ? 'flat' : 'NOT flat'}: it rose by ` +
      `${memory['service']?.riseMb} MB (least squares; up to a tenth of its mean counts as flat). The oldest due ` +
      `delivery was at most ${report.oldestDueRatio} × backlog ÷ throughput old (at most 2 is the goal). ` +
      `${report.missing} tasks answered 2xx are missing.`,
    '',
    '| what | value |',
    '|---|---|',
    ...rows,
    '',
    '`heldBack`: POSTs never sent, since each of the 512 connections still waited for its answer.',
    '',
    '| memory, MB | first | highest | mean of second half | rise of second half | flat |',
    '|---|---|---|---|---|---|',
    ...parts,
    ''
  ].join('\n')
}
