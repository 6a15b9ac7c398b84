import { codesOfOthers } from '../db/cluster.ts'
import type { Sql } from '../db/pool.ts'
import type { Task } from '../domain/types.ts'
import { HandlerElsewhere, Unavailable } from '../runtime/errors.ts'
import { isPowerOfTen, type Logger } from '../runtime/logger.ts'
import type { Cluster } from './cluster.ts'
import { orUnavailable } from './unavailable.ts'

/** The messageCodes that other live processes with an API have a handler for. Throws Unavailable without the database. */
export type HandlersElsewhere = () => Promise<ReadonlySet<string>>

/** An answer is used this long: a flood of unknown messageCodes costs one statement in this time. */
const usedMs = 1_000

export function handlersElsewhere(deps: {
  sql: Sql
  node: string
  cluster: Pick<Cluster, 'isDatabaseAway' | 'setDatabaseAway' | 'isRejoining'>
}): HandlersElsewhere {
  const { sql, node, cluster } = deps
  let last = { codes: Promise.resolve<ReadonlySet<string>>(new Set()), until: -Infinity }
  return async () => {
    if (cluster.isDatabaseAway() || cluster.isRejoining()) throw new Unavailable()
    if (last.until <= performance.now()) {
      const now = { codes: codesOfOthers(sql, node, 'api'), until: Infinity }
      const ended = (ms: number) => () => void (now.until = performance.now() + ms)
      now.codes.then(ended(usedMs), ended(0))
      last = now
    }
    return orUnavailable(cluster, last.codes)
  }
}

/** Receipts of a queue come again within this time. After a longer pause, one that comes belongs to another deploy. */
const pauseMs = 300_000

/**
 * The check of receipts of messageCodes without a handler here. It throws HandlerElsewhere if another process has the handler: its hook must
 * decide. If none has it, the receipt is taken without a hook. A receipt from a queue comes back to the same process, and keeps those
 * behind it waiting: it waits no longer than a rolling deploy, `queuedWaitMs` (default a minute).
 */
export function receiptCheck({
  handlersElsewhere,
  queuedWaitMs = 60_000,
  log,
  now = () => performance.now()
}: {
  handlersElsewhere: HandlersElsewhere
  queuedWaitMs?: number
  log: Logger
  now?: () => number
}) {
  /** By messageCode: how many receipts were taken. Of those from queues: when they began to wait, and when the last one came. */
  const seen = new Map<string, { taken: number; waitingFrom: number; lastAt: number }>()
  return async (
    { isQueued = false }: { isQueued?: boolean },
    { taskNo, messageCode, downstream }: Pick<Task, 'taskNo' | 'messageCode'> & { downstream: string }
  ): Promise<void> => {
    const one = seen.get(messageCode) ?? { taken: 0, waitingFrom: -Infinity, lastAt: -Infinity }
    seen.set(messageCode, one)
    if (isQueued) {
      if (now() - one.lastAt > pauseMs) one.waitingFrom = now()
      one.lastAt = now()
    }
    const mayWait = !isQueued || now() - one.waitingFrom < queuedWaitMs
    if (mayWait && (await handlersElsewhere()).has(messageCode)) throw new HandlerElsewhere()
    one.taken++
    if (isPowerOfTen(one.taken)) log.warn({ taskNo, downstream, messageCode }, 'receipt.no_handler')
  }
}
