// One run of producers: work with faults, heal, come to rest, read both ends. The judge is separate.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { ask, askUntilClear } from '../client.ts'
import { textOf } from '../leaks.ts'
import { unless } from '../load.ts'
import type { Profile } from '../options.ts'
import { readTasks, type Reader } from '../read.ts'
import type { Progress } from '../run.ts'
import { settled } from '../settled.ts'
import { readOrders, readOutboxes, readShop } from './books.ts'
import type { ProducerHistory } from './judge.ts'
import { startFaults } from './nemesis.ts'
import { planFaults, planWork, requestMs, type Work } from './plan.ts'
import type { Order, ProducerMessage } from './producer.ts'
import { startStand, type Stand, type StandOptions } from './stand.ts'
import { chance } from '../random.ts'

export interface ProducerRunOptions extends Omit<StandOptions, 'onMessage' | 'isCalm'> {
  profile: Profile
  stop: AbortSignal
  say: (now: Progress) => void
}

/** Ends a run without progress. Longer than two requests of a producer, which it may make one after the other and unseen. */
const patienceMs = 2 * (requestMs.timeoutMs + requestMs.retryForMs) + 20_000

export async function runProducers(options: ProducerRunOptions): Promise<ProducerHistory> {
  /** Tasks whose POST was answered 2xx. Others may wait for them. */
  const posted: string[] = []
  /** pids of producers that have nothing left to post. */
  const finished = new Set<number>()
  const stand = await startStand({
    ...options,
    isCalm: options.profile.isCalm === true,
    onMessage(received) {
      const message = received as ProducerMessage
      if (message.kind === 'posted') posted.push(message.taskNo)
      else finished.add(message.pid)
    }
  })
  try {
    return await play(options, stand, posted, finished)
  } finally {
    await stand.close()
  }
}

async function play(
  { seed, profile, stop, say }: ProducerRunOptions,
  stand: Stand,
  posted: readonly string[],
  finished: ReadonlySet<number>
): Promise<ProducerHistory> {
  const { services, relays, producers, witness, url, headers } = stand
  const planned = planWork(seed, profile)
  const nemesis = startFaults(stand, planFaults(seed, profile), stop)
  const began = performance.now()
  const progress: Progress = { phase: 'load', seconds: 0, posted: 0, answered: 0, arrived: 0, nemesis: '' }
  const begun: string[] = []
  const progressTimer = setInterval(() => {
    progress.seconds = (performance.now() - began) / 1_000
    progress.posted = begun.length
    progress.answered = posted.length
    progress.nemesis = nemesis.doing()
    void witness.counts().then(
      ({ tasks }) => (progress.arrived = tasks),
      () => {}
    )
    say(progress)
  }, 2_000)
  const over = new AbortController()
  const reader: Reader = { url, headers, signal: over.signal }
  try {
    await hand(stand, planned, posted, begun, seed, stop)
    await nemesis.done
    progress.phase = 'healing'
    for (const one of [...services, ...relays]) one.calm()
    let last = { orders: 0, unposted: planned.length }
    await settled({ ms: patienceMs, stop, everyMs: 300 }, async () => {
      const busy = producers.filter(one => !finished.has(one.pid()))
      if (busy.length === 0) return { left: 0 }
      for (const one of busy) one.tell({ kind: 'finish' } satisfies Order)
      const shop = await readShop(stand).catch(() => last)
      last = shop
      return { left: busy.length + shop.unposted, seen: shop.orders }
    })
    await Promise.all(producers.map(one => one.end()))
    const orders = await readOrders(stand)
    progress.phase = 'draining'
    await rest(stand, reader, stop)
    const { waiting, rejected: relayed } = await readOutboxes(stand)
    const rejected = [...relayed, ...(await readRejected(reader))]
    const back = await readTasks(
      reader,
      begun.map(taskNo => ({ taskNo })),
      () => {}
    )
    progress.phase = 'ending'
    await Promise.all([...services, ...relays].map(one => one.end()))
    const { arrivals, receipts } = await witness.testimony()
    return {
      seed,
      planned,
      begun,
      orders,
      arrivals,
      receipts,
      tasks: back.tasks,
      waiting,
      rejected,
      faults: nemesis.faults,
      exits: stand.exits,
      points: pointsIn(stand.folder),
      checks: stand.checks,
      interrupted: stop.aborted
    }
  } finally {
    clearInterval(progressTimer)
    over.abort()
  }
}

/** Gives each work to a producer when it is due. The prerequisites of a dependent are the last posted tasks: some are still SENDING. */
async function hand(
  stand: Stand,
  planned: readonly Work[],
  posted: readonly string[],
  begun: string[],
  seed: number,
  stop: AbortSignal
): Promise<void> {
  const by = chance(seed, 'after')
  const began = performance.now()
  for (const work of planned) {
    const waitMs = work.atMs - (performance.now() - began)
    if (waitMs > 0) await unless(stop, waitMs)
    if (stop.aborted) return
    const after = work.isDependent ? posted.slice(-by.whole(1, 3)) : []
    const order: Order = { kind: 'work', work, after }
    if (by.shuffled(stand.producers).some(one => one.tell(order))) begun.push(work.taskNo)
  }
}

/** Resolves when nothing is under way at either end, or after a long time without progress. */
async function rest(stand: Stand, reader: Reader, stop: AbortSignal): Promise<void> {
  await settled({ ms: patienceMs, stop, everyMs: 400 }, async () => {
    const { waiting } = await readOutboxes(stand)
    const prepared = await numbersOf(reader, 'PREPARED')
    const sending = await numbersOf(reader, 'SENDING')
    // The next check of a half message may be minutes away, if its producer could not be reached for long.
    for (const taskNo of prepared)
      await ask(`${reader.url}/tasks/${taskNo}/check`, { method: 'POST', headers: reader.headers })
    const { arrivals } = await stand.witness.counts()
    // Twice, because a row that becomes a SENDING task is progress too.
    return { left: 2 * (waiting.length + prepared.length) + sending.length, seen: arrivals }
  })
}

async function get<T>({ url, headers, signal }: Reader, path: string): Promise<T> {
  const answer = await askUntilClear(waitMs => ask(url + path, { headers, waitMs }), [], signal)
  return JSON.parse(answer.text) as T
}

async function numbersOf(reader: Reader, status: string): Promise<string[]> {
  const { tasks } = await get<{ tasks: { taskNo: string }[] }>(reader, `/tasks?status=${status}&limit=200`)
  return tasks.map(({ taskNo }) => taskNo)
}

async function readRejected(reader: Reader): Promise<string[]> {
  const all: string[] = []
  for (let cursor: string | undefined = ''; cursor !== undefined;) {
    const page: { rejected: { taskNo?: string }[]; nextCursor?: string } = await get(
      reader,
      `/outbox/rejected?limit=200${cursor && `&cursor=${encodeURIComponent(cursor)}`}`
    )
    all.push(...page.rejected.flatMap(({ taskNo }) => taskNo ?? []))
    cursor = page.nextCursor
  }
  return all
}

/** How often each failpoint ended a process. */
function pointsIn(folder: string): Record<string, number> {
  const points: Record<string, number> = {}
  for (const file of readdirSync(folder).filter(one => one.endsWith('.log')))
    for (const [, name = ''] of textOf(join(folder, file)).matchAll(/"msg":"failpoint","name":"([a-z_.]+)"/g))
      points[name] = (points[name] ?? 0) + 1
  return points
}
