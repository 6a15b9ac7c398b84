// The load of the profile `keys`: tasks with an orderingKey, from producers that post side by side.
import { fateOf } from './behaviour.ts'
import type { PlannedTask } from './history.ts'
import { chance, weighted } from './random.ts'

/**
 * `perKey` tasks of each key, in turn, so that all keys are in use at the same time. No task is doomed: a FAILED delivery would rightly
 * hold its key. The sink fails a fifth of the tasks or more, and many receipts are late.
 */
export function planKeys(
  seed: number,
  { seconds, rate }: { seconds: number; rate: number },
  perKey: number
): PlannedTask[] {
  const by = chance(seed, 'keys')
  const count = Math.max(perKey, Math.floor(seconds * rate))
  const keys = Math.max(1, Math.round(count / perKey))
  return Array.from({ length: count }, (_, n): PlannedTask => {
    const messageCode = weighted(by, { 'chaos.receipt': 50, 'chaos.pair': 30, 'chaos.plain': 20 })
    return {
      // Four at the same moment, as from four producers.
      atMs: Math.floor(((n - (n % 4)) * 1_000) / rate),
      taskNo: mendable(seed, n),
      messageCode,
      body: `{"n":${n},"b":1,"a":2}`,
      orderingKey: `key-${Math.floor(n / 2) % keys}`,
      retryTimes: 100,
      ...(by.hit(0.05) && { delayMs: by.whole(200, 2_000) }),
      ...(by.hit(0.1) && { againAfterMs: by.whole(0, 2_000) })
    }
  })
}

/** A taskNo that is not doomed. */
function mendable(seed: number, n: number): string {
  for (let nth = 0; ; nth++) {
    const taskNo = `chaos-${seed}-${n}${nth === 0 ? '' : `-${nth}`}`
    if (fateOf(seed, taskNo) !== 'doomed') return taskNo
  }
}
