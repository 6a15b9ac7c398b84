import type { Sql } from '../db/open.ts'
import { findSettled } from '../db/standing.ts'
import type { Log } from './log.ts'

/** Callers that wait for tasks to come to rest: one look per process for all of them. */
export interface Waiters {
  /** Resolves when the task has settled (or does not exist), at the timeout, or when the signal aborts. 'busy': too many wait. */
  wait(taskNo: string, timeoutMs: number, signal: AbortSignal): Promise<'busy' | undefined>
  /** Answers everybody. */
  stop(): void
}

const lookMs = 200
const most = 1_000

interface Waiter {
  taskNo: string
  end: () => void
}

export function waiters({ sql, log }: { sql: Sql; log: Log }): Waiters {
  const waiting = new Set<Waiter>()
  let asking = 0
  let stopped = false
  const ended = (): boolean => stopped
  let timer: NodeJS.Timeout | undefined

  async function look(): Promise<void> {
    timer = undefined
    const asked = [...waiting]
    try {
      const settled = await findSettled(sql, [...new Set(asked.map(one => one.taskNo))])
      for (const one of asked) if (settled.has(one.taskNo)) one.end()
    } catch (err) {
      log.debug({ err }, 'wait.failed') // the next look may do better; the timeout ends it anyway
    }
    schedule()
  }

  function schedule(): void {
    if (waiting.size > 0 && !stopped) timer ??= setTimeout(() => void look(), lookMs)
  }

  return {
    async wait(taskNo, timeoutMs, signal) {
      if (waiting.size + asking >= most) return 'busy'
      if (ended() || signal.aborted) return
      // The one who asks first sees what is there already.
      asking++
      const settled = await findSettled(sql, [taskNo]).finally(() => asking--)
      // Again: nobody would end a wait that begins after the end.
      if (settled.has(taskNo) || ended() || signal.aborted) return
      await new Promise<void>(resolve => {
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
    },
    stop() {
      stopped = true
      clearTimeout(timer)
      for (const one of waiting) one.end()
    }
  }
}
