// A server that starts beside this process, as after a reboot, is waited for.
import { setTimeout as sleep } from 'node:timers/promises'
import { messageOf, rootOf } from '../runtime/errors.ts'
import { codeOf } from '../runtime/text-of.ts'

/** A server that does not listen yet, and a wrong URL, look the same. */
const refusedMs = 30_000
const pauseMs = 500

interface WaitOptions {
  /** Called once, when the wait begins. `remedy`: if the URL may be wrong. */
  onWait: (wait: { reason: string; remedy?: string }) => void
  /** Called after a wait. */
  onUp?: (ms: number) => void
  signal: AbortSignal
}

/**
 * The result of `connect`, which is called again while the server starts: without end if it says so itself, for 30 s if nothing listens
 * there. Undefined: the signal has ended the wait. Throws every other error.
 */
export async function waitForServer<T>(
  connect: () => Promise<T>,
  { onWait, onUp, signal }: WaitOptions
): Promise<T | undefined> {
  const began = performance.now()
  for (let tries = 0; ; tries++) {
    try {
      const connected = await connect()
      if (tries > 0) onUp?.(Math.round(performance.now() - began))
      return connected
    } catch (err) {
      const root = rootOf(err)
      const code = codeOf(root) ?? ''
      if (!isUpSoon(code) && !(isNotUp(code) && performance.now() - began < refusedMs)) throw err
      const reason = messageOf(root) || code
      if (tries === 0)
        onWait(isUpSoon(code) ? { reason } : { reason, remedy: 'check the URL, and that the server is up' })
    }
    try {
      await sleep(pauseMs, undefined, { signal })
    } catch {
      return undefined
    }
  }
}

/** cannot_connect_now: PostgreSQL starts, recovers from a crash, or stops. */
const isUpSoon = (code: string): boolean => code === '57P03'

/** A server closes a connection without a word while it starts behind a proxy. */
const isNotUp = (code: string): boolean =>
  /^(ECONNREFUSED|ECONNRESET|CONNECTION_CLOSED|EAI_AGAIN|PROTOCOL_CONNECTION_LOST)$/.test(code)
