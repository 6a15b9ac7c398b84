// The work of the producers, and the plan of faults, derived from the seed.
import { chance, weighted, type Chance } from '../random.ts'

/** How a task leaves its producer. */
export const ways = ['enqueue', 'postgres', 'mariadb', 'half', 'post'] as const
export type Way = (typeof ways)[number]

/** Where a producer may die. `committing`: a moment after its COMMIT was sent. `telling`: during its request to Ackbox. */
export const steps = ['working', 'writing', 'committing', 'committed', 'telling'] as const
export type Step = (typeof steps)[number]

/** One transaction of a producer: a business row and its task. */
export interface Work {
  atMs: number
  taskNo: string
  way: Way
  messageCode: string
  body: string
  rollsBack?: true
  /** Ackbox must refuse it; the producer does not know. */
  isWrong?: true
  /** It names tasks that must be HANDLED first. */
  isDependent?: true
  delayMs?: number
  /** How long its transaction stays open. */
  openMs?: number
  /** Of a half message: how long after the 201 its transaction begins. */
  lateMs?: number
  /** kill -9 of its process, this long after the step. */
  dies?: { at: Step; afterMs: number }
}

/** How long one try of a request of a producer takes at most, and for how long it is repeated. */
export const requestMs = { timeoutMs: 5_000, retryForMs: 60_000 }

export const downstreamOf: Record<string, string> = {
  'chaos.plain': 'plain',
  'chaos.receipt': 'receipted',
  'chaos.half': 'halved'
}

export function planWork(
  seed: number,
  { seconds, rate, isCalm = false }: { seconds: number; rate: number; isCalm?: boolean }
): Work[] {
  const by = chance(seed, 'producers')
  const works: Work[] = []
  let deaths = 0
  for (let atMs = 0; ;) {
    atMs += -Math.log(1 - by.next()) * (1_000 / rate)
    if (atMs > seconds * 1_000) return works
    const work = workOf(by, `p${seed}-${works.length}`, works.length, Math.round(atMs))
    // One step after the other, so that a short run has all of them.
    const dies = by.hit(0.025) && { at: steps[deaths++ % steps.length] ?? 'working', afterMs: by.whole(0, 3) }
    works.push({ ...work, ...(dies && !isCalm && { dies }) })
  }
}

function workOf(by: Chance, taskNo: string, n: number, atMs: number): Work {
  const way = weighted(by, { enqueue: 24, postgres: 22, mariadb: 18, half: 18, post: 18 })
  const isRelayed = way === 'postgres' || way === 'mariadb'
  const isWrong = (isRelayed || way === 'enqueue') && by.hit(0.06)
  // Numbers and spaces that change when a program parses and prints them.
  const body = `{"n": ${n},"of":"${taskNo}", "cents":${by.whole(1, 99)}.10}`
  const isOpen = way === 'half' ? by.hit(0.4) : by.hit(0.05)
  const plain = by.pick(['chaos.plain', 'chaos.receipt'] as const)
  return {
    atMs,
    taskNo,
    way,
    messageCode: way === 'half' ? 'chaos.half' : isWrong && by.hit(0.5) ? 'chaos.nobody' : plain,
    body: isWrong ? body.replace('"n"', '"m"') : body,
    ...(isWrong && { isWrong }),
    // A check comes while the transaction is open. It must not commit those that roll back, which are half of them.
    ...(by.hit(way === 'half' && isOpen ? 0.5 : 0.18) && { rollsBack: true }),
    ...((isRelayed || way === 'post') && !isWrong && by.hit(0.4) && { isDependent: true }),
    ...(way === 'post' && by.hit(0.4) && { delayMs: by.whole(300, 2_000) }),
    // Longer than the first check of a half message waits for the barrier, or as long as a slow request.
    ...(isOpen && { openMs: way === 'half' ? by.whole(3_300, 4_200) : by.whole(300, 1_500) }),
    ...(way === 'half' && by.hit(0.12) && { lateMs: by.whole(1_500, 2_500) })
  }
}

export const actions = [
  'kill.service',
  'kill.relay.postgres',
  'kill.relay.mariadb',
  'kill.producer',
  'postgres.stop',
  'postgres.backends',
  'shop.stop',
  'mariadb.kill'
] as const
export type ProducerAction = (typeof actions)[number]

export interface ProducerStep {
  atMs: number
  action: ProducerAction
  holdMs: number
  which: number
}

/** Two parallel tracks, processes and databases. A cycle has each action once, in its own order. */
export function planFaults(
  seed: number,
  { seconds, stopMs, isCalm = false }: { seconds: number; stopMs: number; isCalm?: boolean }
) {
  const by = chance(seed, 'producers nemesis')
  const track = (wanted: readonly ProducerAction[], gapMs: number): ProducerStep[] => {
    const plan: ProducerStep[] = []
    if (isCalm) return plan
    // Each at least once, and no more when the work is over.
    for (let atMs = 1_500; atMs < seconds * 1_000;)
      for (const action of by.shuffled(wanted)) {
        if (plan.length >= wanted.length && atMs > seconds * 1_000) break
        const holdMs = /stop|mariadb\.kill/.test(action) ? by.whole(stopMs >> 1, stopMs) : 0
        plan.push({ atMs, action, holdMs, which: by.whole(0, 1) })
        atMs += holdMs + by.whole(gapMs >> 1, gapMs)
      }
    return plan
  }
  const isOfProcess = (action: ProducerAction) =>
    action === 'kill.service' || action === 'kill.producer' || action.startsWith('kill.relay')
  return {
    processes: track(actions.filter(isOfProcess), 3_500),
    databases: track(
      actions.filter(action => !isOfProcess(action)),
      6_000
    )
  }
}

const servicePoints: Record<string, number> = {
  'accept.before_commit': 4,
  'accept.after_commit': 4,
  'outbox.after_read': 3,
  'outbox.after_store': 3,
  'outbox.before_reject': 1,
  'outbox.after_reject': 1,
  'check.after_answer': 1,
  'claim.after_commit': 2,
  'execute.after_send': 4,
  'complete.before_commit': 4,
  'complete.after_commit': 4,
  'receipt.before_commit': 2,
  'receipt.after_commit': 2
}
const relayPoints: Record<string, number> = {
  'relay.after_read': 3,
  'relay.after_post': 3,
  'relay.after_remove': 3
}

/** FAILPOINTS of each launch of a process: each launch dies at the next point. Every third launch of a service has no failpoint. */
export function pointsOf(seed: number, name: string): (launch: number) => string {
  const by = chance(seed, `points ${name}`)
  const isRelay = name.startsWith('relay')
  const points = isRelay ? relayPoints : servicePoints
  const order = by.shuffled(Object.keys(points))
  return launch => {
    if (!isRelay && launch % 3 === 2) return ''
    const point = order[launch % order.length] ?? ''
    return `${point}=kill#${by.whole(1, points[point] ?? 1)}`
  }
}
