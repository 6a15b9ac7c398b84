import { setTimeout as wait } from 'node:timers/promises'

/**
 * Runs `work` every `ms`, counted from its end, until the signal aborts. Resolves when the last run has ended. `onError` gets an
 * exception, and the next run follows. `work` may return the ms until its next run.
 */
export async function repeat(
  ms: number,
  work: () => Promise<number | void>,
  onError: (err: unknown) => void,
  signal: AbortSignal
): Promise<void> {
  while (!signal.aborted) {
    let waitMs = ms
    try {
      waitMs = (await work()) ?? ms
    } catch (err) {
      onError(err)
    }
    if (!signal.aborted) await sleep(waitMs, signal)
  }
}

/** Ends early and without an error when the signal aborts. */
export const sleep = (ms: number, signal?: AbortSignal): Promise<void> =>
  wait(ms, undefined, { signal }).catch(() => {})

/** A sleep that `end` cuts short, even before it begins. `take` resolves to true if it was cut short. */
export function interruptibleSleep(): {
  take(ms: number, signal: AbortSignal): Promise<boolean>
  end(): void
} {
  let woken = false
  let end = (): void => {
    woken = true
  }
  return {
    end: () => end(),
    take: (ms, signal) =>
      new Promise(resolve => {
        if (woken || signal.aborted) {
          woken = false
          resolve(true)
          return
        }
        const done = (isCut: boolean): void => {
          clearTimeout(timer)
          signal.removeEventListener('abort', cut)
          end = () => {
            woken = true
          }
          resolve(isCut)
        }
        const cut = (): void => done(true)
        const timer = setTimeout(done, ms, false)
        signal.addEventListener('abort', cut)
        end = cut
      })
  }
}
