// npm run bench -- isolation: ten downstreams, one of which never answers. How much does it slow down the other nine?
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { start } from './child.ts'
import { onGround, type Ground } from './ground.ts'
import type { LoadReport } from './load.ts'
import { quantile, sorted } from './measure.ts'
import { median } from './median.ts'
import { asked, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import type { SinkReport } from './sink.ts'
import { discard, startAckbox } from './variants.ts'

const help = `npm run bench -- isolation [options]

Ten messageCodes with one downstream each, all with the same limit. Tasks are posted to them in turn at a steady rate. In one
turn all of them answer; in the other the first accepts connections and never answers. Each turn has an empty database. The
report, one line of JSON on stdout, is about the other nine: ms from the POST to the arrival, and the ratio of the two turns.
Goal: a ratio of at most 2.

  --seconds N    how long each turn is measured, after 3 s to warm up              (6)
  --rate N       tasks a second to all ten together                                (200)
  --rounds N     pairs of turns; medians are reported                              (5)
  --quick        a tiny run that shows that it works
  --help`

interface Turn {
  p50: number
  p99: number
  /** Tasks to the nine that were answered 2xx, but never arrived. */
  lost: number
  refused: number
}

interface Amounts {
  rate: number
  seconds: number
  warmSeconds: number
  rounds: number
}

const downstreams = 10

export async function main(args: string[]): Promise<void> {
  const values = asked(args, { seconds: text, rate: text, rounds: text, quick: flag }, help)
  const { quick } = values
  const amounts: Amounts = {
    rate: whole('--rate', values.rate ?? '200'),
    seconds: whole('--seconds', values.seconds ?? (quick ? '2' : '6')),
    warmSeconds: quick ? 1 : 3,
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '5'))
  }
  const folder = handlers()
  try {
    await onGround(quick, async ground => void report(await compare(ground, folder, amounts)))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

/** A folder of handlers with a file for each messageCode. */
function handlers(): string {
  const folder = mkdtempSync(join(tmpdir(), 'ackbox-bench-handlers-'))
  const from = JSON.stringify(import.meta.resolve('./tenth.js'))
  for (let n = 0; n < downstreams; n++) {
    writeFileSync(join(folder, `${n}.mjs`), `import { tenth } from ${from}\nexport default tenth(${n})\n`)
  }
  return folder
}

async function compare(ground: Ground, folder: string, amounts: Amounts) {
  const healthy: Turn[] = []
  const silent: Turn[] = []
  for (let turn = 1; turn <= amounts.rounds; turn++) {
    const kinds = [
      async () => healthy.push(say(`round ${turn}: all answer`, await measure(ground, folder, amounts))),
      async () => silent.push(say(`round ${turn}: one is silent`, await measure(ground, folder, amounts, 0)))
    ]
    // Each kind is first equally often, in case the order matters.
    for (const run of turn % 2 === 1 ? kinds : kinds.toReversed()) await run()
  }
  const medians = (turns: Turn[]) => ({
    p50: round(median(turns.map(({ p50 }) => p50)), 2),
    p99: round(median(turns.map(({ p99 }) => p99)), 2)
  })
  // The ratio is computed per round, so that a machine that slows down during the run changes it little.
  const ratio = (key: 'p50' | 'p99') =>
    round(median(silent.map((one, turn) => one[key] / (healthy[turn]?.[key] ?? NaN))), 2)
  const sum = (key: 'lost' | 'refused') => [...healthy, ...silent].reduce((total, one) => total + one[key], 0)
  return {
    bench: 'isolation',
    ...amounts,
    allAnswer: medians(healthy),
    oneSilent: medians(silent),
    ratio: { p50: ratio('p50'), p99: ratio('p99') },
    lost: sum('lost'),
    refused: sum('refused'),
    queue: ground.redisUrl === undefined ? 'postgres' : 'redis'
  }
}

function say(what: string, turn: Turn): Turn {
  const { p50, p99, lost, refused } = turn
  console.error(
    `${what}: p50 ${p50.toFixed(1)} ms, p99 ${p99.toFixed(1)} ms, lost ${lost}, refused ${refused}`
  )
  return turn
}

/** One turn. `mute`: the index of the downstream that does not answer. */
async function measure(
  ground: Ground,
  folder: string,
  { rate, seconds, warmSeconds }: Amounts,
  mute?: number
): Promise<Turn> {
  await ground.emptyRedis()
  const sink = await start('./sink.js', {
    BENCH_PORTS: `${downstreams}`,
    ...(mute === undefined ? {} : { BENCH_MUTE: `${mute}` })
  })
  try {
    const origins = (sink.hello as { ports: number[] }).ports.map(port => `127.0.0.1:${port}`)
    const running = await startAckbox(ground, 'bench_isolation', ground.redisUrl, {
      HANDLERS_DIR: folder,
      EGRESS_ALLOW: origins.join(),
      ...Object.fromEntries(origins.map((origin, n) => [`BENCH_SINK_${n}`, `http://${origin}`]))
    })
    const post = async (run: string, tasks: number) => {
      await sink.ask({ kind: 'expect', run, tasks })
      const messageCodes = Array.from({ length: downstreams }, (_, n) => `bench.${n}`)
      const question = { target: running.url, run, tasks, inFlight: 256, rate, messageCodes }
      const { starts, refused } = (await ground.load.ask(question)) as LoadReport
      return { refused, ...(await waits(sink, starts)) }
    }
    try {
      const warm = await post('warm', rate * warmSeconds)
      const { ms, lost, refused } = await post('steady', rate * seconds)
      return {
        p50: quantile(ms, 0.5),
        p99: quantile(ms, 0.99),
        lost: warm.lost + lost,
        refused: warm.refused + refused
      }
    } finally {
      await discard(running)
    }
  } finally {
    await sink.stop()
  }
}

/** If nothing arrives for this long, the rest counts as lost. */
const patienceMs = 15_000

/** Ms from POST to arrival, for all downstreams except the first, which may be the silent one. */
async function waits(sink: { ask: (question: object) => Promise<unknown> }, starts: Float64Array) {
  const expected = [...starts.keys()].filter(index => index % downstreams !== 0)
  let arrived: number[] = []
  for (
    let since = Date.now();
    arrived.length < expected.length && Date.now() - since < patienceMs;
    await sleep(100)
  ) {
    const { arrivals } = (await sink.ask({ kind: 'report' })) as SinkReport
    const now = expected.filter(index => arrivals[index] !== 0)
    const waited = now.map(index => (arrivals[index] ?? 0) - (starts[index] ?? 0))
    if (waited.length > arrived.length) since = Date.now()
    arrived = waited
  }
  return { ms: sorted(arrived), lost: expected.length - arrived.length }
}
