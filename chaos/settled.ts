// The waits at the end of a run. Progress extends them, so no verdict depends on how fast the machine is.
import { pause } from './client.ts'

export interface Look {
  /** 0 ends the wait. */
  left: number
  /** A count that grows. */
  seen?: number
}

export interface SettledOptions {
  /** The wait ends after this time without progress. */
  ms: number
  /** After its abort `hurriedMs` replace `ms`. */
  stop: AbortSignal
  /** The pause between two looks. */
  everyMs?: number
}

/** Without progress a run waits for this time after Ctrl-C. */
export const hurriedMs = 5_000

/**
 * Resolves when a look finds nothing left, or when one finds no progress after `ms` without any. Progress is less left, or more seen,
 * than in each look before.
 */
export async function settled(
  { ms, stop, everyMs = 500 }: SettledOptions,
  look: () => Look | Promise<Look>
): Promise<void> {
  let least = Infinity
  let most = -Infinity
  for (let since = performance.now(); ; await pause(everyMs)) {
    const { left, seen = 0 } = await look()
    if (left === 0) return
    const now = performance.now()
    if (left < least || seen > most) since = now
    else if (now - since >= (stop.aborted ? Math.min(ms, hurriedMs) : ms)) return
    least = Math.min(least, left)
    most = Math.max(most, seen)
  }
}
