// npm run bench -- keys: tasks with an orderingKey compared with the same tasks without.
import { onGround, redisOf, type Ground } from './ground.ts'
import { fullLoad, type Full, type Way } from './measure.ts'
import { median } from './median.ts'
import { asked, choice, flag, text, whole } from './options.ts'
import { report, round } from './report.ts'
import { discard, startAckbox } from './variants.ts'

const help = `npm run bench -- keys [options]

Tasks without a key, with many keys in turn, and all with one key, by turns, each turn on an empty database. One line of JSON for
each on stdout; the ratio is relative to the tasks without a key of the same round. Goals: a ratio of at least 0.7 with 1,000 keys,
and 300 tasks a second with one key.

  --tasks N      tasks of a turn, as fast as answers come   (20000)
  --warm N       tasks before each turn, to warm up         (as many again)
  --hot N        tasks of the one key                       (3000)
  --keys N       ordering keys                              (1000)
  --rounds N     rounds; medians are reported               (3)
  --in-flight N  POSTs in flight                            (256)
  --mode MODE    where BullMQ stores jobs: redis, postgres or either (either: redis, if there is a redis-server)
  --quick        a tiny run that shows that it works
  --help`

interface Kind {
  name: string
  way: Way
  tasks: number
  warm: number
}

export async function main(args: string[]): Promise<void> {
  const numbers = { tasks: text, warm: text, hot: text, keys: text, rounds: text, 'in-flight': text }
  const values = asked(args, { ...numbers, mode: text, quick: flag }, help)
  const { quick } = values
  const tasks = whole('--tasks', values.tasks ?? (quick ? '300' : '20000'))
  const warm = whole('--warm', values.warm ?? (quick ? '100' : (values.tasks ?? '20000')))
  const hot = whole('--hot', values.hot ?? (quick ? '50' : '3000'))
  const keys = whole('--keys', values.keys ?? (quick ? '20' : '1000'))
  const rounds = whole('--rounds', values.rounds ?? (quick ? '1' : '3'))
  const inFlight = whole('--in-flight', values['in-flight'] ?? '256')
  const mode = choice('--mode', values.mode ?? 'either', ['redis', 'postgres', 'either'])
  const kinds: Kind[] = [
    { name: 'without', way: {}, tasks, warm },
    { name: `${keys} keys`, way: { keys }, tasks, warm },
    { name: 'one key', way: { keys: 1 }, tasks: hot, warm: Math.min(warm, hot) }
  ]
  await onGround(quick, async ground => {
    const redisUrl = redisOf(ground, mode)
    const turns = new Map(kinds.map(({ name }) => [name, [] as Full[]]))
    for (let nth = 1; nth <= rounds; nth++)
      for (const kind of nth % 2 === 1 ? kinds : kinds.toReversed()) {
        const full = await turn(ground, redisUrl, kind, { inFlight, settleMs: quick ? 200 : 1_500 })
        const { tasksPerSecond, lost, duplicates, refused } = full
        console.error(
          `round ${nth}/${rounds}, ${kind.name}: ${Math.round(tasksPerSecond)} tasks/s, lost ${lost}, duplicates ${duplicates}, refused ${refused}`
        )
        turns.get(kind.name)?.push(full)
      }
    const baseline = turns.get('without') ?? []
    for (const { name } of kinds)
      report({ ...resultOf(name, turns.get(name) ?? [], baseline), queue: redisUrl ? 'redis' : 'postgres' })
  })
}

async function turn(
  ground: Ground,
  redisUrl: string | undefined,
  { way, tasks, warm }: Kind,
  amounts: { inFlight: number; settleMs: number }
): Promise<Full> {
  await ground.emptyRedis()
  const running = await startAckbox(ground, 'bench_keys', redisUrl)
  try {
    return await fullLoad(running, ground, { ...amounts, tasks, warm }, way)
  } finally {
    await discard(running)
  }
}

function resultOf(name: string, turns: Full[], baseline: Full[]) {
  const of = (value: (one: Full) => number | undefined, digits: number) =>
    round(median(turns.map(one => value(one) ?? NaN)), digits)
  const sum = (key: 'lost' | 'duplicates' | 'refused') => turns.reduce((total, one) => total + one[key], 0)
  const parts = Object.keys(turns[0]?.cpuMsPerTask ?? {})
  return {
    bench: `keys, ${name}`,
    ratio: round(
      median(turns.map((one, nth) => one.tasksPerSecond / (baseline[nth]?.tasksPerSecond ?? NaN))),
      3
    ),
    tasksPerSecond: of(one => one.tasksPerSecond, 0),
    lost: sum('lost'),
    duplicates: sum('duplicates'),
    refused: sum('refused'),
    cpuMsPerTaskOf: Object.fromEntries(parts.map(what => [what, of(one => one.cpuMsPerTask[what], 3)])),
    statementsPerTask: of(one => one.statementsPerTask, 3),
    commitsPerTask: of(one => one.commitsPerTask, 3),
    walBytesPerTask: of(one => one.walBytesPerTask, 0),
    rounds: turns.length
  }
}
