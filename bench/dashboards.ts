// npm run bench -- dashboards: twenty dashboards are open while Ackbox runs at full load. What do they cost?
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { request } from 'undici'
import { onGround, redisOf, type Ground } from './ground.ts'
import { fullLoad, type Full } from './measure.ts'
import { median } from './median.ts'
import { memoryMb, secondHalf } from './memory.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { startAckbox } from './variants.ts'

const help = `npm run bench -- dashboards [options]

By turns, each on an empty database: full load with dashboards open and without. A dashboard is an event stream and the
requests of its page, as often as the page sends them. The report is one line of JSON on stdout.

  --dashboards N  open dashboards                                           (20)
  --tasks N       tasks of a turn, after as many to warm up                 (20000)
  --rounds N      pairs of turns; medians are reported                      (5)
  --mode MODE     redis or postgres: where BullMQ stores jobs               (redis, or postgres without a redis-server)
  --rollups       compares counts by minute on and off instead, without dashboards
  --quick         a tiny run that shows that it works
  --help

Goals: 0.95 of the rate without dashboards or more, and memory that does not rise; 0.98 of the rate without counts by minute.
For ten minutes of dashboards set --tasks to as many as fill ten minutes, and --rounds 1.`

/** The requests of the pages in src/ui/pages, and their intervals. */
const pages: { everyMs: number; paths: string[] }[] = [
  {
    everyMs: 10_000,
    paths: [
      '/stats',
      '/downstreams',
      '/failures?limit=5',
      '/alarms?open=true&limit=50',
      '/keys?held=true&limit=200'
    ]
  },
  {
    everyMs: 15_000,
    paths: ['/downstreams', '/stats?by=downstream&step=300', '/failures?limit=200']
  },
  { everyMs: 15_000, paths: ['/failures?limit=100'] },
  { everyMs: 30_000, paths: ['/alarms?open=true&limit=200'] },
  { everyMs: 10_000, paths: ['/nodes'] }
]
/** After an event of a change a page reads again. Events within this time cause one read. */
const soonMs = 300
const sampleMs = 2_000

interface Turn extends Full {
  memory: number[]
}

export async function main(args: string[]): Promise<void> {
  const values = asked(
    args,
    { dashboards: text, tasks: text, rounds: text, mode: text, rollups: flag, quick: flag },
    help
  )
  const { quick, rollups } = values
  const dashboards = whole('--dashboards', values.dashboards ?? (quick ? '3' : '20'))
  const tasks = whole('--tasks', values.tasks ?? (quick ? '300' : '20000'))
  const rounds = whole('--rounds', values.rounds ?? (quick ? '1' : '5'))
  await onGround(quick, async ground => {
    const given = values.mode ?? (ground.redisUrl === undefined ? 'postgres' : 'redis')
    const redisUrl = redisOf(ground, choice('--mode', given, ['redis', 'postgres']))
    const amounts = { tasks, warm: tasks, inFlight: 256, settleMs: quick ? 200 : 1500 }
    const one = async (isWith: boolean): Promise<Turn> => {
      const open = isWith && !rollups ? dashboards : 0
      return await turn(
        ground,
        redisUrl,
        amounts,
        open,
        rollups ? { BENCH_ROLLUPS: isWith ? 'on' : 'off' } : {}
      )
    }
    const results = { with: new Array<Turn>(), without: new Array<Turn>() }
    for (let round = 1; round <= rounds; round++)
      // Each is first equally often, in case the order matters.
      for (const kind of round % 2 === 1 ? (['with', 'without'] as const) : (['without', 'with'] as const)) {
        const measured = await one(kind === 'with')
        results[kind].push(measured)
        console.error(`round ${round}/${rounds}: ${kind}: ${Math.round(measured.tasksPerSecond)} tasks/s`)
      }
    report({
      bench: rollups ? 'rollups' : 'dashboards',
      ...resultOf(results, rollups ? 0.98 : 0.95),
      ...(rollups ? {} : { dashboards }),
      tasks,
      rounds,
      queue: redisUrl === undefined ? 'postgres' : 'redis'
    })
  })
}

async function turn(
  ground: Ground,
  redisUrl: string | undefined,
  amounts: Parameters<typeof fullLoad>[2],
  open: number,
  settings: Record<string, string>
): Promise<Turn> {
  await ground.emptyRedis()
  const before = process.env['BENCH_NODE'] ?? ''
  if (settings['BENCH_ROLLUPS'] !== undefined)
    process.env['BENCH_NODE'] =
      `${before} --import=${fileURLToPath(new URL('./without-rollups.js', import.meta.url))}`
  const running = await startAckbox(ground, 'bench_dashboards', redisUrl, settings)
  process.env['BENCH_NODE'] = before
  const over = new AbortController()
  const { signal } = over
  const memory: number[] = []
  const looking = Array.from({ length: open }, (_, n) => dashboard(running.url, n, signal))
  for (const one of looking) one.catch(() => {}) // awaited below
  const sampling = sample(running.pids['service'] ?? 0, memory, signal)
  try {
    return { ...(await fullLoad(running, ground, amounts)), memory }
  } finally {
    over.abort()
    await Promise.all([...looking, sampling])
    await running.stop()
  }
}

async function sample(pid: number, memory: number[], signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    memory.push(memoryMb(pid))
    await sleep(sampleMs, undefined, { signal }).catch(() => {})
  }
}

/** Open until `signal` aborts. An answer other than 200 ends the benchmark. */
async function dashboard(url: string, n: number, signal: AbortSignal): Promise<void> {
  const page = pages[n % pages.length]
  if (!page) return
  let isChanged = false
  const read = async (): Promise<void> => {
    isChanged = false
    for (const path of page.paths) {
      const answer = await request(`${url}${path}`, { signal })
      await answer.body.dump()
      if (answer.statusCode !== 200) throw new Error(`${path}: ${answer.statusCode}`)
    }
  }
  // A stream ends after five minutes; then the page opens it again, and reads.
  const hear = async (): Promise<void> => {
    while (!signal.aborted) {
      const stream = await request(`${url}/events`, { signal, bodyTimeout: 0 })
      if (stream.statusCode !== 200) throw new Error(`/events: ${stream.statusCode}`)
      for await (const bytes of stream.body) if (String(bytes).includes('event: changed')) isChanged = true
      isChanged = true
    }
  }
  const look = async (): Promise<void> => {
    for (let last = -Infinity; !signal.aborted; await sleep(soonMs, undefined, { signal })) {
      if (!isChanged && performance.now() - last < page.everyMs) continue
      await read()
      last = performance.now()
    }
  }
  try {
    await Promise.all([hear(), look()])
  } catch (err) {
    if (!signal.aborted) throw err
  }
}

function resultOf(results: { with: Turn[]; without: Turn[] }, goal: number) {
  const rate = (turns: Turn[]) => round(median(turns.map(one => one.tasksPerSecond)))
  // The ratio is computed per round, so that a machine that slows down during the run changes it little.
  const ratio = median(
    results.with.map((one, at) => one.tasksPerSecond / (results.without[at]?.tasksPerSecond ?? NaN))
  )
  const all = [...results.with, ...results.without]
  const sum = (key: 'lost' | 'duplicates' | 'refused') => all.reduce((total, one) => total + one[key], 0)
  const rss = (turns: Turn[]) => round(Math.max(...turns.map(one => one.rssMb['service'] ?? NaN)), 1)
  const rises = results.with.map(({ memory }) => secondHalf(memory))
  return {
    ratio: round(ratio, 3),
    reached: { rate: ratio >= goal, memory: rises.every(({ mean, rise }) => rise <= mean / 10) },
    withPerSecond: rate(results.with),
    withoutPerSecond: rate(results.without),
    rssMb: { with: rss(results.with), without: rss(results.without) },
    riseMb: round(Math.max(...rises.map(({ rise }) => rise)), 1),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused')
  }
}
