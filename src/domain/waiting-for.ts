// The reason why a delivery is not over yet: a code with its values, and a sentence in two languages.
import type { Phase, TaskStatus } from './types.ts'

/** A task that another task waits for. With `orderingKey`, it is earlier in this key. Without, the other task names it in `after`. */
export interface Blocker {
  taskNo: string
  status: TaskStatus
  /** The start of this status, if known. */
  since?: string
  orderingKey?: string
}

/** An open delivery, as the API shows it. Times are RFC 3339. */
export interface OpenDelivery {
  downstream: string
  phase?: Phase
  attempt: number
  nextActionAt?: string
  deliveredAt?: string
  attempts?: readonly {
    attempt: number
    outcome: string
    reason?: string
    status?: number
    startedAt: string
    ms: number
  }[]
}

/** The other facts that decide: processes, handlers, pauses, other tasks. */
export interface ServiceState {
  now: Date
  workers: number
  dispatchers: number
  hasHandler: boolean
  paused?: { since: string; by?: string }
  blockers: readonly Blocker[]
}

interface LastAttempt {
  /** A status or a reason. */
  answer: string
  at: string
  /** For a delivered attempt: the failure after its answer. */
  reason?: string
}

export type WaitingFor =
  | { code: 'NEXT_ATTEMPT'; attempt: number; at: string; last?: LastAttempt }
  | { code: 'ROOM'; attempt: number; since: string; last?: LastAttempt }
  | { code: 'ANSWER'; attempt: number; until?: string }
  | { code: 'RECEIPT'; deliveredAt?: string; until: string }
  | { code: 'TASK'; blocker: Blocker; more: number }
  | { code: 'PAUSED'; downstream: string; since: string; by?: string }
  | { code: 'HANDLER'; downstream: string }
  | { code: 'WORKER' }
  /** `missing`: no dispatcher is running. */
  | { code: 'DISPATCHER'; missing?: true }

/** Null: the delivery is over. Of several reasons, it returns the one that must end before the others matter. */
export function waitingFor(delivery: OpenDelivery, service: ServiceState): WaitingFor | null {
  const { phase, downstream, attempt, nextActionAt, deliveredAt } = delivery
  if (phase === undefined) return null
  const isDispatched = service.dispatchers > 0
  if (phase === 'BLOCKED') {
    const [blocker] = service.blockers
    // The caller may not see the blocking task, or the delivery was unblocked just now.
    if (blocker) return { code: 'TASK', blocker, more: service.blockers.length - 1 }
    return isDispatched ? { code: 'DISPATCHER' } : noDispatcher
  }
  const isDue = nextActionAt === undefined || Date.parse(nextActionAt) <= service.now.getTime()
  if (phase === 'IN_FLIGHT') {
    // No worker is left to receive an answer.
    if (service.workers === 0) return { code: 'WORKER' }
    return { code: 'ANSWER', attempt, ...(nextActionAt === undefined ? {} : { until: nextActionAt }) }
  }
  if (phase === 'AWAITING_RECEIPT') {
    if (isDue && !isDispatched) return noDispatcher
    return {
      code: 'RECEIPT',
      ...(deliveredAt === undefined ? {} : { deliveredAt }),
      until: nextActionAt ?? service.now.toISOString()
    }
  }
  if (service.paused) return { code: 'PAUSED', downstream, ...service.paused }
  if (!service.hasHandler) return { code: 'HANDLER', downstream }
  if (service.workers === 0) return { code: 'WORKER' }
  if (!isDispatched) return noDispatcher
  const at = nextActionAt ?? service.now.toISOString()
  const failed = delivery.attempts?.at(-1)
  const last = failed && lastOf(failed)
  const next = { attempt: attempt + 1, ...(last ? { last } : {}) }
  return isDue ? { code: 'ROOM', since: at, ...next } : { code: 'NEXT_ATTEMPT', at, ...next }
}

const noDispatcher: WaitingFor = { code: 'DISPATCHER', missing: true }

function lastOf({
  outcome,
  reason,
  status,
  startedAt,
  ms
}: NonNullable<OpenDelivery['attempts']>[number]): LastAttempt {
  const at = new Date(Date.parse(startedAt) + ms).toISOString()
  if (outcome !== 'delivered') return { answer: String(status ?? reason ?? outcome), at }
  return { answer: String(status ?? outcome), at, ...(reason === undefined ? {} : { reason }) }
}

type Language = 'en' | 'zh'

/** The sentence for people. With `now` it shows the time left, else the time of the event. Times are UTC unless `clock` formats them. */
export function waitingText(
  waiting: WaitingFor,
  language: Language,
  { now, clock = utc }: { now?: Date; clock?: (at: string) => string } = {}
): string {
  const left = (at: string): string => (now ? duration(Date.parse(at) - now.getTime(), language) : clock(at))
  return (language === 'zh' ? inChinese : inEnglish)(waiting, left, clock, now !== undefined)
}

type Sentence = (
  waiting: WaitingFor,
  left: (at: string) => string,
  clock: (at: string) => string,
  counts: boolean
) => string

const after = ({ reason }: LastAttempt, word: string): string => (reason === undefined ? '' : word + reason)

const inEnglish: Sentence = (waiting, left, clock, counts) => {
  const when = (at: string): string => (counts ? `in ${left(at)}` : `at ${left(at)}`)
  const before = (last: LastAttempt | undefined, attempt: number): string =>
    last ? `: attempt ${attempt - 1} got ${last.answer} at ${clock(last.at)}${after(last, ', then ')}.` : '.'
  switch (waiting.code) {
    case 'NEXT_ATTEMPT':
      return `Attempt ${waiting.attempt} starts ${when(waiting.at)}${before(waiting.last, waiting.attempt)}`
    case 'ROOM':
      return `Attempt ${waiting.attempt} has been due since ${clock(waiting.since)} and starts once there is room${before(waiting.last, waiting.attempt)}`
    case 'ANSWER':
      return `Attempt ${waiting.attempt} is claimed by a process: no answer yet${waiting.until === undefined ? '' : `; without one it counts as lost ${when(waiting.until)}`}.`
    case 'RECEIPT':
      return `Delivered${waiting.deliveredAt === undefined ? '' : ` at ${clock(waiting.deliveredAt)}`}; its receipt is due ${when(waiting.until)}.`
    case 'TASK': {
      const { taskNo, orderingKey, status, since } = waiting.blocker
      const where = orderingKey === undefined ? 'It comes after' : 'Behind'
      const key = orderingKey === undefined ? '' : ` of the key ${orderingKey}`
      const more = waiting.more === 0 ? '' : ` And for ${waiting.more} more.`
      return `${where} ${taskNo}${key}, which is ${status}${since === undefined ? '' : ` since ${clock(since)}`}.${more}`
    }
    case 'PAUSED':
      return `${waiting.downstream} has been paused since ${clock(waiting.since)}${waiting.by === undefined ? '' : `, by ${waiting.by}`}.`
    case 'HANDLER':
      return `No handler here names ${waiting.downstream}.`
    case 'WORKER':
      return 'No worker is running.'
    case 'DISPATCHER':
      return waiting.missing ? 'No dispatcher is running.' : 'A dispatcher releases it in its next sweep.'
  }
}

const inChinese: Sentence = (waiting, left, clock, counts) => {
  const when = (at: string): string => (counts ? `在 ${left(at)}后` : `于 ${left(at)} `)
  const before = (last: LastAttempt | undefined, attempt: number): string =>
    last ? `：第 ${attempt - 1} 次于 ${clock(last.at)} 得到 ${last.answer}${after(last, '，之后 ')}。` : '。'
  switch (waiting.code) {
    case 'NEXT_ATTEMPT':
      return `第 ${waiting.attempt} 次尝试将${when(waiting.at)}开始${before(waiting.last, waiting.attempt)}`
    case 'ROOM':
      return `第 ${waiting.attempt} 次尝试自 ${clock(waiting.since)} 起已到期，一有空位就开始${before(waiting.last, waiting.attempt)}`
    case 'ANSWER':
      return `第 ${waiting.attempt} 次尝试已有进程认领，尚无响应${waiting.until === undefined ? '' : `；若无响应，将${when(waiting.until)}按丢失处理`}。`
    case 'RECEIPT':
      return `已${waiting.deliveredAt === undefined ? '' : `于 ${clock(waiting.deliveredAt)} `}送达；应在 ${left(waiting.until)}${counts ? '内' : ' 前'}收到回执。`
    case 'TASK': {
      const { taskNo, orderingKey, status, since } = waiting.blocker
      const key = orderingKey === undefined ? '' : `（顺序键 ${orderingKey}）`
      const more = waiting.more === 0 ? '' : `另有 ${waiting.more} 个前置任务。`
      return `排在 ${taskNo}${key}之后，该任务${since === undefined ? '' : `自 ${clock(since)} 起`}为 ${status}。${more}`
    }
    case 'PAUSED':
      return `${waiting.downstream} 自 ${clock(waiting.since)} 起已暂停${waiting.by === undefined ? '' : `，操作人 ${waiting.by}`}。`
    case 'HANDLER':
      return `这里没有发往 ${waiting.downstream} 的处理器。`
    case 'WORKER':
      return '没有运行中的 worker。'
    case 'DISPATCHER':
      return waiting.missing ? '没有运行中的 dispatcher。' : '等待 dispatcher 下一次扫描时放行。'
  }
}

/** `10:02:11` of that day in UTC. */
const utc = (at: string): string => `${new Date(at).toISOString().slice(11, 19)} UTC`

/** `42 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`. A past time is `0 s`. */
export function duration(ms: number, language: Language): string {
  const s = Math.max(0, Math.round(ms / 1_000))
  const [second, minute, hour, day] =
    language === 'zh' ? ['秒', '分钟', '小时', '天'] : ['s', 'min', 'h', 'd']
  const two = (a: number, of: string | undefined, b: number, rest: string | undefined): string =>
    b === 0 ? `${a} ${of}` : `${a} ${of} ${b} ${rest}`
  if (s < 60) return `${s} ${second}`
  if (s < 3_600) return two(Math.floor(s / 60), minute, s % 60, second)
  if (s < 86_400) return two(Math.floor(s / 3_600), hour, Math.floor((s % 3_600) / 60), minute)
  return two(Math.floor(s / 86_400), day, Math.floor((s % 86_400) / 3_600), hour)
}
