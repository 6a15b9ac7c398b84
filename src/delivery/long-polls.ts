import type { Sql } from '../db/pool.ts'
import { findEnded } from '../db/read-tasks.ts'
import type { Logger } from '../runtime/logger.ts'
import { sharedRoom } from '../runtime/shared-room.ts'

/** The long polls of the API: callers that wait until tasks end. One query per process serves all of them. */
export interface LongPolls {
  /**
   * Resolves when the task has ended (or does not exist), at the timeout, or when the signal aborts. 'busy': too many callers
   * wait, in total or of this caller.
   */
  wait(taskNo: string, quotaKey: string, timeoutMs: number, signal: AbortSignal): Promise<'busy' | undefined>
  /** Ends the waits of all callers. */
  stop(): void
}

const lookMs = 200
/** The total limit; 1,000 for one caller if it is alone. */
const most = 2_000

interface LongPoll {
  taskNo: string
  end: () => void
}

export function longPolls({ sql, log }: { sql: Sql; log: Logger }): LongPolls {
  const waiting = new Set<LongPoll>()
  const places = sharedRoom(most)
  let stopped = false
  const ended = (): boolean => stopped
  let timer: NodeJS.Timeout | undefined

  async function look(): Promise<void> {
    timer = undefined
    const current = [...waiting]
    try {
      const settled = await findEnded(sql, [...new Set(current.map(poll => poll.taskNo))])
      for (const poll of current) if (settled.has(poll.taskNo)) poll.end()
    } catch (err) {
      log.debug({ err }, 'wait.failed') // the next query may succeed; the timeout ends the wait anyway
    }
    schedule()
  }

  function schedule(): void {
    if (waiting.size > 0 && !stopped) timer ??= setTimeout(() => void look(), lookMs)
  }

  function rest(taskNo: string, timeoutMs: number, signal: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const poll = { taskNo, end }
      const timeout = setTimeout(end, timeoutMs)
      function end(): void {
        clearTimeout(timeout)
        signal.removeEventListener('abort', end)
        waiting.delete(poll)
        resolve()
      }
      signal.addEventListener('abort', end)
      waiting.add(poll)
      schedule()
    })
  }

  return {
    async wait(taskNo, quotaKey, timeoutMs, signal) {
      const leave = places.take(quotaKey)
      if (!leave) return 'busy'
      try {
        if (ended() || signal.aborted) return
        // The first caller sees the current state.
        const settled = await findEnded(sql, [taskNo])
        // Checked again: nothing would end a wait that begins after the end.
        if (!settled.has(taskNo) && !ended() && !signal.aborted) await rest(taskNo, timeoutMs, signal)
      } finally {
        leave()
      }
    },
    stop() {
      stopped = true
      clearTimeout(timer)
      for (const poll of waiting) poll.end()
    }
  }
}
