import type { Sql } from '../db/pool.ts'
import { findEnded } from '../db/read-tasks.ts'
import type { Logger } from '../runtime/logger.ts'

/** Callers that wait until tasks end. One query per process serves all of them. */
export interface Waiters {
  /**
   * Resolves when the task has ended (or does not exist), at the timeout, or when the signal aborts. 'busy': too many callers
   * wait, in total or of this owner.
   */
  wait(taskNo: string, owner: string, timeoutMs: number, signal: AbortSignal): Promise<'busy' | undefined>
  /** Ends the waits of all callers. */
  stop(): void
}

const lookMs = 200
/** The total limit. One owner may have as many as are still free: 1,000 if it is alone, so there is always room for another owner. */
const most = 2_000

interface Waiter {
  taskNo: string
  end: () => void
}

export function waiters({ sql, log }: { sql: Sql; log: Logger }): Waiters {
  const waiting = new Set<Waiter>()
  const owners = new Map<string, number>()
  let taken = 0
  let stopped = false
  const ended = (): boolean => stopped
  let timer: NodeJS.Timeout | undefined

  async function look(): Promise<void> {
    timer = undefined
    const current = [...waiting]
    try {
      const settled = await findEnded(sql, [...new Set(current.map(waiter => waiter.taskNo))])
      for (const waiter of current) if (settled.has(waiter.taskNo)) waiter.end()
    } catch (err) {
      log.debug({ err }, 'wait.failed') // the next query may succeed; the timeout ends the wait anyway
    }
    schedule()
  }

  function schedule(): void {
    if (waiting.size > 0 && !stopped) timer ??= setTimeout(() => void look(), lookMs)
  }

  function take(owner: string, n: 1 | -1): void {
    taken += n
    const own = (owners.get(owner) ?? 0) + n
    if (own > 0) owners.set(owner, own)
    else owners.delete(owner)
  }

  function rest(taskNo: string, timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const waiter = { taskNo, end }
      const timeout = setTimeout(end, timeoutMs)
      function end(): void {
        clearTimeout(timeout)
        signal.removeEventListener('abort', end)
        waiting.delete(waiter)
        resolve()
      }
      signal.addEventListener('abort', end)
      waiting.add(waiter)
      schedule()
    })
  }

  return {
    async wait(taskNo, owner, timeoutMs, signal) {
      if ((owners.get(owner) ?? 0) >= most - taken) return 'busy'
      if (ended() || signal.aborted) return
      take(owner, 1)
      try {
        // The first caller sees the current state.
        const settled = await findEnded(sql, [taskNo])
        // Checked again: nothing would end a wait that begins after the end.
        if (!settled.has(taskNo) && !ended() && !signal.aborted) await rest(taskNo, timeoutMs, signal)
      } finally {
        take(owner, -1)
      }
    },
    stop() {
      stopped = true
      clearTimeout(timer)
      for (const waiter of waiting) waiter.end()
    }
  }
}
