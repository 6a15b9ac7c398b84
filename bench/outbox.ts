// npm run bench -- outbox: the cost of enqueuing by SQL in the producer's transaction, compared with the batch API, and the delay.
import { loadavg } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { start, type Child } from './child.ts'
import type { EnqueueQuestion } from './enqueue.ts'
import { onGround, type Ground } from './ground.ts'
import type { LoadReport } from './load.ts'
import { arrival, quantile, send, sorted } from './measure.ts'
import { median } from './median.ts'
import { asked, flag, text, whole } from './options.ts'
import { outboxOfProducer, type OutboxOfProducer } from './outbox-relay.ts'
import { report, round } from './report.ts'
import type { SinkReport } from './sink.ts'
import { discard, startAckbox, type Running } from './variants.ts'

const help = `npm run bench -- outbox [options]

One Ackbox with all roles. In one turn tasks are posted to /tasks/batch; in the next the same tasks are enqueued by SQL in the
same database, by as many producers with as many tasks a call, each call a transaction. ratio compares their tasks a second,
from the first call to the last arrival. In a third turn the tasks are rows of a producer's own database, and \`ackbox relay\`
moves them: relayRatio compares its tasks a second, from its start to the last arrival, with those of /tasks/batch. Then the
time from the commit to the arrival is measured: for single tasks on an idle service, with and without a nudge, and at a
steady rate with one transaction a task. One line of JSON on stdout.

  --tasks N      tasks of a turn                     (10000)
  --batch N      tasks per call                      (100)
  --in-flight N  calls at a time                     (8)
  --rounds N     rounds of three turns; medians are reported (3)
  --rate N       transactions a second               (500)
  --seconds N    duration of the steady rate         (5)
  --single N     single tasks                        (20)
  --quick        a tiny run that shows that it works
  --help`

interface Amounts {
  tasks: number
  batch: number
  inFlight: number
  rounds: number
  rate: number
  seconds: number
  single: number
}

const name = 'bench_outbox'
/** The goals of the ratios, on a machine without other load. */
const goals = { enqueue: 0.8, relay: 0.5 }

export async function main(args: string[]): Promise<void> {
  const numbers = { tasks: text, batch: text, 'in-flight': text, rounds: text, rate: text, seconds: text }
  const values = asked(args, { ...numbers, single: text, quick: flag }, help)
  const { quick } = values
  const amounts: Amounts = {
    tasks: whole('--tasks', values.tasks ?? (quick ? '400' : '10000')),
    batch: whole('--batch', values.batch ?? '100'),
    inFlight: whole('--in-flight', values['in-flight'] ?? '8'),
    rounds: whole('--rounds', values.rounds ?? (quick ? '1' : '3')),
    rate: whole('--rate', values.rate ?? (quick ? '50' : '500')),
    seconds: whole('--seconds', values.seconds ?? (quick ? '1' : '5')),
    single: whole('--single', values.single ?? (quick ? '2' : '20'))
  }
  await onGround(quick, async ground => {
    const producers = await start('./enqueue.js')
    await ground.emptyRedis()
    const running = await startAckbox(ground, name, ground.redisUrl)
    const shop = await outboxOfProducer(await ground.database(`${name}_producer`))
    try {
      report(await measure(ground, running, producers, shop, amounts))
    } finally {
      await shop.close()
      await discard(running)
      await producers.stop()
    }
  })
}

async function measure(
  ground: Ground,
  { url: target }: Running,
  producers: Child,
  shop: OutboxOfProducer,
  amounts: Amounts
) {
  const { tasks, batch, inFlight, rounds, rate, seconds, single } = amounts
  const loadAverage = loadavg()[0] ?? NaN
  const sums = { lost: 0, refused: 0, duplicates: 0 }
  const add = <Sent extends typeof sums>(sent: Sent): Sent => {
    for (const key of ['lost', 'refused', 'duplicates'] as const) sums[key] += sent[key]
    return sent
  }
  const databaseUrl = ground.urlOf(name)
  const post = async () => add(await send(ground, { target, tasks, inFlight, batch, settleMs: 200 }))
  const enqueue = async (question: Omit<EnqueueQuestion, 'databaseUrl' | 'run'>) =>
    add(await enqueued(ground, producers, { databaseUrl, ...question }))
  const turns = {
    post,
    enqueue: () => enqueue({ tasks, inFlight, batch }),
    relay: async () => add(await relayed(ground, shop, target, tasks))
  }
  const ways = ['post', 'enqueue', 'relay'] as const
  for (const way of ways) await turns[way]()
  const perSecond = { post: [] as number[], enqueue: [] as number[], relay: [] as number[] }
  for (let nth = 1; nth <= rounds; nth++)
    // Each is first equally often, in case the order matters.
    for (const way of [...ways.slice((nth - 1) % 3), ...ways.slice(0, (nth - 1) % 3)]) {
      const { tasksPerSecond } = await turns[way]()
      perSecond[way].push(tasksPerSecond)
      console.error(`round ${nth}/${rounds}: ${way} ${Math.round(tasksPerSecond)} tasks/s`)
    }
  const steady = await enqueue({ tasks: rate * seconds, inFlight: 32, rate })
  const alone = async (more: { nudge?: string }) => {
    const waits: number[] = []
    // Random, so that the commits are not in step with the polling of the service.
    for (let n = 0; n < single; n++, await sleep(1_500 + Math.random() * 1_000)) {
      const { waits: one } = await enqueue({ tasks: 1, inFlight: 1, ...more })
      waits.push(...one)
    }
    return sorted(waits)
  }
  const [idle, nudged] = [await alone({}), await alone({ nudge: target })]
  const ratioOf = (way: 'enqueue' | 'relay'): number =>
    round(median(perSecond[way].map((one, nth) => one / (perSecond.post[nth] ?? NaN))), 3)
  return {
    bench: 'outbox',
    ratio: ratioOf('enqueue'),
    goal: goals.enqueue,
    relayRatio: ratioOf('relay'),
    relayGoal: goals.relay,
    relayedPerSecond: round(median(perSecond.relay)),
    enqueuedPerSecond: round(median(perSecond.enqueue)),
    postedPerSecond: round(median(perSecond.post)),
    ...sums,
    // Ms from the commit to the arrival.
    idle: { p50: round(quantile(idle, 0.5)), most: round(idle.at(-1) ?? NaN) },
    nudged: { p50: round(quantile(nudged, 0.5), 1), most: round(nudged.at(-1) ?? NaN, 1) },
    steady: { p50: round(quantile(steady.waits, 0.5)), p99: round(quantile(steady.waits, 0.99)) },
    ...amounts,
    loadAverage: round(loadAverage, 1),
    queue: ground.redisUrl === undefined ? 'postgres' : 'redis'
  }
}

let runs = 0

async function enqueued({ sink }: Ground, producers: Child, question: Omit<EnqueueQuestion, 'run'>) {
  const run = `e${++runs}`
  const { tasks } = question
  await sink.ask({ kind: 'expect', run, tasks })
  const { starts, accepts } = (await producers.ask({ ...question, run })) as LoadReport
  await arrival(sink, tasks)
  const { arrivals, duplicates } = (await sink.ask({ kind: 'report' })) as SinkReport
  // The answer to a commit may be read after the arrival: that counts as 0 ms.
  const waits = sorted(
    [...arrivals].flatMap((at, n) => (at === 0 ? [] : [Math.max(0, at - (accepts[n] ?? at))]))
  )
  const took = (arrivals.reduce((last, at) => Math.max(last, at), 0) - (starts[0] ?? 0)) / 1000
  return { waits, lost: tasks - waits.length, duplicates, refused: 0, tasksPerSecond: waits.length / took }
}

async function relayed({ sink }: Ground, shop: OutboxOfProducer, target: string, tasks: number) {
  const run = `o${++runs}`
  await shop.fill(run, tasks)
  await sink.ask({ kind: 'expect', run, tasks })
  const { readyAt, end } = await shop.relay(target)
  try {
    await arrival(sink, tasks)
    const { arrivals, duplicates } = (await sink.ask({ kind: 'report' })) as SinkReport
    const arrived = arrivals.filter(at => at > 0).length
    const took = (arrivals.reduce((last, at) => Math.max(last, at), 0) - readyAt) / 1000
    return { lost: tasks - arrived, duplicates, refused: 0, tasksPerSecond: arrived / took }
  } finally {
    // The relay must remove its rows first: left rows would belong to the next turn.
    for (let left = 100; left > 0 && (await shop.waiting()) > 0; left--) await sleep(50)
    await end()
  }
}
