// One run of receivers: two processes of the service, two receivers on each database. All are killed again and again, then they heal.
import { ask, askUntilClear } from '../client.ts'
import { chance } from '../random.ts'
import { unless } from '../load.ts'
import type { Mutant } from '../mutant.ts'
import { settled, type SettledOptions } from '../settled.ts'
import type { ReceiverHistory } from './judge.ts'
import { startStand, type Stand } from './stand.ts'
import type { Place } from './terms.ts'

export interface ReceiverRunOptions {
  seed: number
  queue: 'redis' | 'postgres'
  root: string
  seconds: number
  rate: number
  mutant?: Mutant
  keep: boolean
  stop: AbortSignal
  say: (text: string) => void
}

/** Ends a run without progress. A receipt that was not taken is sent again after a minute at most. */
const patienceMs = 90_000

export async function runReceivers(options: ReceiverRunOptions): Promise<ReceiverHistory> {
  const stand = await startStand(options)
  try {
    return await play(options, stand)
  } finally {
    await stand.close()
  }
}

async function play(
  { seed, seconds, rate, stop, say }: ReceiverRunOptions,
  { services, receivers, databases, exits, calm }: Stand
): Promise<ReceiverHistory> {
  const by = chance(seed, 'receivers')
  const accepted: { taskNo: string; points: number }[] = []
  const over = new AbortController()
  const open = new Set<Promise<void>>()
  let serviceKills = 0
  const url = () => by.pick(services).url
  const post = async (taskNo: string, points: number): Promise<void> => {
    const text = JSON.stringify({ taskNo, messageCode: 'chaos.points', messageBody: { points } })
    const { status } = await askUntilClear(
      waitMs => ask(`${url()}/tasks`, { method: 'POST', body: text, waitMs }),
      [],
      over.signal
    )
    if (status < 300 && status >= 200) accepted.push({ taskNo, points })
  }
  const until = performance.now() + seconds * 1_000
  const faults = (async () => {
    while (performance.now() < until && !stop.aborted) {
      await unless(stop, by.whole(2_000, 5_000))
      const member = by.pick(services)
      serviceKills++
      await member.kill()
      await member.start()
    }
  })()
  for (let nth = 0; performance.now() < until && !stop.aborted; nth++) {
    const posting = post(`points-${seed}-${nth}`, by.whole(1, 1_000)).finally(() => open.delete(posting))
    open.add(posting)
    if (nth % (rate * 5) === 0)
      say(`${nth} posted, ${receivers.reduce((sum, one) => sum + one.launches(), 0)} launches of receivers`)
    await unless(stop, by.next() * (2_000 / rate))
  }
  await faults
  say('healing')
  calm()
  const wait = { ms: patienceMs, stop }
  await settled(wait, () => ({ left: open.size }))
  over.abort()
  await Promise.all(open)
  const { unhandled, repeats } = await readBack(url, accepted, wait, say)
  const granted: Record<string, number> = {}
  const unsent: Record<string, number> = {}
  for (const [name, { select }] of Object.entries(databases)) {
    for (const row of await select('select kind, sum(granted) as total from points group by kind'))
      granted[`${name} ${String(row['kind'])}`] = Number(row['total'])
    await settled(wait, async () => {
      const [row] = await select('select count(*) as total from ackbox_receipt_outbox')
      const left = Number(row?.['total'])
      unsent[name] = left
      return { left }
    })
  }
  const deaths: ReceiverHistory['deaths'] = {}
  for (const { name, log } of receivers) {
    const where = name.replace(/-\d$/, '')
    const at = (deaths[where] ??= { 'after-commit': 0, 'before-commit': 0, 'after-receipt': 0 })
    for (const [, place] of log().matchAll(/^died ([a-z-]+)$/gm)) at[place as Place]++
  }
  return { seed, accepted, unhandled, granted, unsent, deaths, serviceKills, repeats, exits: [...exits] }
}

interface TaskRead {
  status: string
  deliveries: { downstream: string; status: string; attempt: number }[]
}

async function readBack(
  url: () => string,
  accepted: readonly { taskNo: string }[],
  wait: SettledOptions,
  say: (text: string) => void
): Promise<{ unhandled: string[]; repeats: number }> {
  const left = new Set(accepted.map(one => one.taskNo))
  const last = new Map<string, TaskRead>()
  let repeats = 0
  await settled(wait, async () => {
    for (const taskNo of left) {
      const answer = await ask(`${url()}/tasks/${taskNo}`, {})
      if (answer.status !== 200) continue
      const task = JSON.parse(answer.text) as TaskRead
      last.set(taskNo, task)
      if (task.status === 'SENDING') continue
      left.delete(taskNo)
      repeats += task.deliveries.reduce((sum, one) => sum + one.attempt - 1, 0)
    }
    if (left.size > 0) say(`${left.size} tasks under way`)
    const attempts = [...last.values()].flatMap(task => task.deliveries.map(one => one.attempt))
    return { left: left.size, seen: attempts.reduce((sum, attempt) => sum + attempt, 0) }
  })
  const unhandled = accepted.flatMap(({ taskNo }) => {
    const task = last.get(taskNo)
    if (!task) return [`${taskNo} cannot be read`]
    return task.deliveries
      .filter(one => one.status !== 'HANDLED')
      .map(one => `${taskNo} ${one.downstream} ${one.status}`)
  })
  return { unhandled, repeats }
}
