import type { Outcome } from '../domain/types.ts'
import { deadlines, type Due } from './deadlines.ts'
import type { SendContext } from './types.ts'

/** One send, as the code that writes it sees it. */
export interface Flight {
  /** It has ended: nothing of it may be written any more. */
  readonly over: boolean
}

/** Sends of one transport, each ended once: by its answer, its deadline, the process's end or `close`. */
export function openSends(): {
  fly(
    context: SendContext,
    send: (flight: Flight) => Promise<Outcome>,
    cut?: (why: string) => void
  ): Promise<Outcome>
  close(): void
} {
  const clock = deadlines<Due & { stop: (why: string) => void }>()
  return {
    fly(context, send, cut) {
      if (context.signal.aborted) return Promise.resolve({ kind: 'failed', reason: 'shutdown' })
      if (context.timeoutMs <= 0) return Promise.resolve({ kind: 'failed', reason: 'timeout' })
      return new Promise((resolve, reject) => {
        const flight = { over: false }
        const stop = (reason: string): void => {
          if (!settle()) return
          cut?.(reason)
          resolve({ kind: 'failed', reason })
        }
        const due = {
          due: performance.now() + context.timeoutMs,
          signal: context.signal,
          index: -1,
          expire: () => stop(context.signal.aborted ? 'shutdown' : 'timeout'),
          stop
        }
        const settle = (): boolean => {
          if (flight.over) return false
          flight.over = true
          clock.delete(due)
          return true
        }
        clock.add(due)
        send(flight).then(
          outcome => settle() && resolve(outcome),
          (error: unknown) => settle() && reject(error as Error)
        )
      })
    },
    close() {
      for (const { stop } of clock.all()) stop('shutdown')
    }
  }
}

/** What is wrong where one of these names would pass for a header of ours; undefined when none would. */
export function reservedName(
  names: Iterable<string>,
  kind: 'header' | 'property' = 'header'
): string | undefined {
  for (const name of names) {
    if (/^(?:webhook-|ackbox-)/i.test(name)) return `a handler must not set the ${kind} ${name.toLowerCase()}`
  }
  return undefined
}
