// How long something took, asked so that a neighbour who keeps the machine busy does not change the answer much.
import type { Test } from 'tap'

const turnMs = 10

/**
 * ms since it was made, as the event loop of this process lived them: a turn that took longer counts as two. A wait of the
 * thing under test counts in full, a wait for a processor hardly at all.
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

/** ms that processors worked for this process: what the work itself costs, however long it had to wait for them. */
export function workedMs(work: () => void): number {
  const before = process.cpuUsage()
  work()
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}

/** ms that processors worked for this process while so much time passed: little, of what does not spin. */
export async function workedOver(ms: number): Promise<number> {
  const before = process.cpuUsage()
  await new Promise(resolve => setTimeout(resolve, ms))
  const { user, system } = process.cpuUsage(before)
  return (user + system) / 1_000
}
