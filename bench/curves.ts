// npm run bench -- curves: a single figure does not show how a service behaves at different loads; two curves do.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { onGround, type Ground } from './ground.ts'
import { quantile, send, sorted } from './measure.ts'
import { median } from './median.ts'
import { asked, chosen, flag, text, whole } from './options.ts'
import { plot } from './plot.ts'
import { report, round } from './report.ts'
import { discard, variants, type Running, type Variant } from './variants.ts'

const help = `npm run bench -- curves [options]

Tasks a second by POSTs in flight, and ms from the POST to the arrival by tasks a second, of each variant, round after
round. Medians are written to stdout, one line of JSON for each variant, to docs/plots/curves.json, and as plots beside it:
throughput.svg and latency.svg. A rate that most rounds of a variant missed by more than 5 % is left out, and all above it.

  --rounds N     rounds; medians are reported          (3)
  --seconds N    how long each point is measured       (4)
  --warm N       tasks before, to warm up              (10000)
  --only A,B     some of ${variants.map(({ name }) => name).join(', ')}
  --to FOLDER    where the files are written           (docs/plots; none with --quick)
  --draw         draws the numbers of that folder again, without measuring
  --quick        a tiny run that shows that it works
  --help`

interface Amounts {
  rounds: number
  seconds: number
  warm: number
  inFlight: number[]
  rates: number[]
}

interface Curve {
  name: string
  throughput: { inFlight: number; tasksPerSecond: number }[]
  latency: { rate: number; p50Ms: number; p99Ms: number }[]
}

/** The content of curves.json. */
interface Curves extends Amounts {
  date: string
  cores: number
  node: string
  curves: Curve[]
}

interface Turn {
  curve: Curve
  lost: number
  refused: number
}

export async function main(args: string[]): Promise<void> {
  const values = asked(
    args,
    { rounds: text, seconds: text, warm: text, only: text, to: text, draw: flag, quick: flag },
    help
  )
  const { quick } = values
  const folder = values.to ?? join('docs', 'plots')
  if (values.draw) {
    return await draw(JSON.parse(readFileSync(join(folder, 'curves.json'), 'utf8')) as Curves, folder)
  }
  const to = quick && values.to === undefined ? undefined : folder
  const amounts: Amounts = {
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '3')),
    seconds: whole('--seconds', values.seconds ?? (quick ? '1' : '4')),
    warm: whole('--warm', values.warm ?? (quick ? '100' : '10000')),
    inFlight: quick ? [4] : [1, 4, 16, 64, 128, 256, 512],
    rates: quick ? [100] : [100, 200, 500, 1000, 2000, 4000]
  }
  const these = chosen(variants, values.only)
  await onGround(quick, async ground => {
    const turns = await measure(
      ground,
      these.filter(({ needsRedis }) => !needsRedis || ground.redisUrl !== undefined),
      amounts
    )
    const curves: Curve[] = []
    let good = true
    for (const [name, measured] of turns) {
      const sum = (key: 'lost' | 'refused') => measured.reduce((total, turn) => total + turn[key], 0)
      const line = {
        bench: `curve ${name}`,
        ...medians(name, measured, amounts),
        lost: sum('lost'),
        refused: sum('refused'),
        rounds: amounts.rounds
      }
      good = report(line) && good
      curves.push({ name, throughput: line.throughput, latency: line.latency })
    }
    if (!good) return console.error('nothing is drawn')
    const date = new Date().toISOString().slice(0, 10)
    await draw({ date, ...amounts, cores: availableParallelism(), node: process.version, curves }, to)
  })
}

/** Back and forth through the variants, in case it matters what ran before. */
async function measure(ground: Ground, these: Variant[], amounts: Amounts): Promise<Map<string, Turn[]>> {
  const turns = new Map<string, Turn[]>(these.map(({ name }) => [name, []]))
  for (let turn = 1; turn <= amounts.rounds; turn++) {
    for (const variant of turn % 2 === 1 ? these : these.toReversed()) {
      console.error(`round ${turn}/${amounts.rounds}: ${variant.name}`)
      await ground.emptyRedis()
      const running = await variant.start(ground)
      try {
        turns.get(variant.name)?.push(await oneTurn(ground, running, variant.name, amounts))
      } finally {
        await discard(running)
      }
    }
  }
  return turns
}

async function oneTurn(
  ground: Ground,
  { url: target }: Running,
  name: string,
  amounts: Amounts
): Promise<Turn> {
  const curve: Curve = { name, throughput: [], latency: [] }
  let [lost, refused] = [0, 0]
  const run = async (tasks: number, inFlight: number, rate?: number) => {
    const load = { target, tasks, inFlight, settleMs: 100 }
    const result = await send(ground, rate === undefined ? load : { ...load, rate })
    lost += result.lost
    refused += result.refused
    return result
  }
  await run(amounts.warm, 256)
  // The low load first: after the high load PostgreSQL cleans up, which would slow down the other part.
  for (const rate of amounts.rates) {
    const { tasksPerSecond, waits } = await run(rate * amounts.seconds, 256, rate)
    if (tasksPerSecond < rate * 0.95) {
      console.error(`  ${rate}/s: it does ${Math.round(tasksPerSecond)}`)
      break
    }
    const ms = sorted(waits)
    const [p50Ms, p99Ms] = [quantile(ms, 0.5), quantile(ms, 0.99)]
    console.error(`  ${rate}/s: p50 ${p50Ms.toFixed(1)} ms, p99 ${p99Ms.toFixed(1)} ms`)
    curve.latency.push({ rate, p50Ms, p99Ms })
  }
  for (const inFlight of amounts.inFlight) {
    // A short run estimates the number of tasks for the time.
    const { tasksPerSecond: guess } = await run(Math.max(100, 8 * inFlight), inFlight)
    const { tasksPerSecond } = await run(Math.ceil(guess * amounts.seconds), inFlight)
    console.error(`  ${inFlight} in flight: ${Math.round(tasksPerSecond)} tasks/s`)
    curve.throughput.push({ inFlight, tasksPerSecond })
  }
  return { curve, lost, refused }
}

function medians(name: string, turns: Turn[], { inFlight: levels, rates }: Amounts): Curve {
  const of = (values: number[], digits: number) => round(median(values), digits)
  const throughput = levels.map(inFlight => {
    const points = turns.flatMap(({ curve }) => curve.throughput.filter(point => point.inFlight === inFlight))
    const perSecond = points.map(({ tasksPerSecond }) => tasksPerSecond)
    return { inFlight, tasksPerSecond: of(perSecond, 0) }
  })
  const latency = rates.flatMap(rate => {
    const points = turns.flatMap(({ curve }) => curve.latency.filter(point => point.rate === rate))
    if (points.length <= turns.length / 2) return []
    const [p50s, p99s] = [points.map(({ p50Ms }) => p50Ms), points.map(({ p99Ms }) => p99Ms)]
    return [{ rate, p50Ms: of(p50s, 2), p99Ms: of(p99s, 2) }]
  })
  return { name, throughput, latency }
}

/** In `variants` it comes right after the variant that it belongs to. */
const isPipelined = (name: string): boolean => name.endsWith('-pipelined')

/** Without a folder the plots are made but not written, to show that it works. */
async function draw(curves: Curves, folder: string | undefined): Promise<void> {
  // At low rates the pipelined variants have the same latency, and their curves would only hide the others.
  const plain = curves.curves.filter(({ name }) => !isPipelined(name))
  const throughput = await plot({
    title: 'Throughput, from the first POST to the last arrival',
    x: 'POSTs in flight',
    y: 'tasks a second',
    logX: true,
    logY: true,
    series: curves.curves.map(({ name, throughput: points }) => ({
      name,
      points: points.map(({ inFlight, tasksPerSecond }) => [inFlight, tasksPerSecond]),
      dashed: isPipelined(name)
    }))
  })
  const latency = await plot({
    title: 'Latency, from the POST to the arrival',
    x: 'tasks a second',
    y: 'ms',
    logX: true,
    logY: true,
    series: plain.flatMap(({ name, latency: points }) => [
      { name: `${name} p50`, points: points.map(({ rate, p50Ms }) => [rate, p50Ms]) },
      { name: `${name} p99`, points: points.map(({ rate, p99Ms }) => [rate, p99Ms]), dashed: true }
    ])
  })
  if (folder === undefined) return
  mkdirSync(folder, { recursive: true })
  writeFileSync(join(folder, 'throughput.svg'), throughput)
  writeFileSync(join(folder, 'latency.svg'), latency)
  writeFileSync(join(folder, 'curves.json'), `${JSON.stringify(curves, null, 2)}\n`)
  console.error(`drawn in ${folder}`)
}
