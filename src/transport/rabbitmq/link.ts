import type { Broker } from '../broker.ts'
import { Failure, type Blocked, type Guard } from '../guard.ts'
import { dial } from './dial.ts'
import { Line } from './line.ts'

/** The way to one broker: one open line at a time, opened when it is needed and after it broke. */
export interface Link {
  /** Rejects with a Failure. */
  line(): Promise<Line>
  close(): Promise<void>
}

interface LinkDeps {
  guard: Guard
  log: { info(fields: object, message: string): void; warn(fields: object, message: string): void }
}

/** After a failure nobody knocks for so long: of a thousand sends at a broker that is down, few connect. */
const pauseMs = 100

export function link({ guard, log }: LinkDeps, broker: Broker): Link {
  const stop = new AbortController()
  let line: Promise<Line> | undefined
  let host = 0
  let knocksAt = 0
  let isAway = false

  function away({ reason }: Blocked): void {
    if (isAway || stop.signal.aborted) return
    isAway = true
    log.warn({ broker: broker.name, reason }, 'broker.away')
  }

  async function open(): Promise<Line> {
    try {
      const dialed = await dial(guard, broker, host, stop.signal)
      host = dialed.host
      const opened: Line = new Line(dialed, why => {
        line = undefined
        away(why)
      })
      if (isAway) log.info({ broker: broker.name, address: dialed.address }, 'broker.back')
      isAway = false
      return opened
    } catch (error) {
      knocksAt = performance.now() + pauseMs
      if (error instanceof Failure) away(error.outcome)
      throw error
    }
  }

  return {
    line() {
      if (knocksAt > 0 && performance.now() > knocksAt) {
        knocksAt = 0
        line = undefined
      }
      return (line ??= open())
    },

    async close() {
      stop.abort()
      const opened = await line?.catch(() => undefined)
      await opened?.close()
    }
  }
}
