import type { Logger } from '../../runtime/logger.ts'
import type { Broker } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import { Failure, type Failed } from '../failure.ts'
import { dial } from './dial.ts'
import { ChannelPool } from './channel.ts'

/** One connection to one broker. It is opened when it is needed, and again after a loss. */
export interface RabbitmqLink {
  /** Rejects with a Failure. */
  pool(): Promise<ChannelPool>
  close(): Promise<void>
}

interface LinkDeps {
  guard: Guard
  log: Pick<Logger, 'info' | 'warn'>
}

/** The pause after a failed connect: a thousand sends to a broker that is down must not all connect. */
const pauseMs = 100

export function rabbitmqLink({ guard, log }: LinkDeps, broker: Broker): RabbitmqLink {
  const stop = new AbortController()
  let pool: Promise<ChannelPool> | undefined
  let host = 0
  let knocksAt = 0
  let isAway = false

  function away({ reason }: Failed): void {
    if (isAway || stop.signal.aborted) return
    isAway = true
    log.warn({ broker: broker.name, reason }, 'broker.unavailable')
  }

  async function open(): Promise<ChannelPool> {
    try {
      // The server sends messages only as returns of ours that no queue took: never more bytes than were sent.
      const unreturned = { bytes: 0 }
      const mayCome = (bytes: number): boolean => {
        unreturned.bytes -= bytes
        return unreturned.bytes >= 0
      }
      const dialed = await dial(guard, broker, host, mayCome, stop.signal)
      host = dialed.host
      const opened: ChannelPool = new ChannelPool(dialed, unreturned, why => {
        pool = undefined
        away(why)
      })
      if (isAway) log.info({ broker: broker.name, address: dialed.address }, 'broker.available')
      isAway = false
      return opened
    } catch (error) {
      knocksAt = performance.now() + pauseMs
      if (error instanceof Failure) away(error.outcome)
      throw error
    }
  }

  return {
    pool() {
      if (knocksAt > 0 && performance.now() > knocksAt) {
        knocksAt = 0
        pool = undefined
      }
      return (pool ??= open())
    },

    async close() {
      stop.abort()
      const opened = await pool?.catch(() => undefined)
      await opened?.close()
    }
  }
}
