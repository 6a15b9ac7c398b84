// Measures how long something took, so that other load on the machine changes the result only a little.
import type { Test } from 'tap'

const turnMs = 10

/**
 * ms since its creation, counted in turns of the event loop of 10 ms: a longer turn counts as two. A wait of the code under test
 * counts in full, a wait for a processor counts very little.
 */
export function stopwatch(t: Test): () => number {
  let counted = 0
  let since = performance.now()
  const turn = (): void => {
    const now = performance.now()
    counted += Math.min(now - since, 2 * turnMs)
    since = now
  }
  const turns = setInterval(turn, turnMs)
  t.teardown(() => clearInterval(turns))
  return () => {
    turn()
    return Math.round(counted)
  }
}

/** CPU time of this process during the work, in ms: the cost of the work, without its waits for a processor. */
export function workedMs(work: () => void): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

/** CPU time of this process while `ms` pass, in ms. It is small if no code spins. */
export async function workedOver(ms: number): Promise<number> {
  const before = process.cpuUsage()
  await new Promise(resolve => setTimeout(resolve, ms))
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}
