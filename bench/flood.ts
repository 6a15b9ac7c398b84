// Producers that do not wait: a fixed rate of POSTs for a fixed time, independent of the answers.
import { setTimeout as sleep } from 'node:timers/promises'
import { now, serve } from './child.ts'
import { connection, isRefusal } from './http1.ts'
import { bodyOf } from './posted.ts'

export type FloodQuestion =
  | { kind: 'start'; target: string; run: string; rate: number; seconds: number; connections: number }
  | { kind: 'count' }
export interface FloodCount {
  /** POSTs that were due so far. */
  due: number
  /** Answered 2xx. `refused`: 429 or 503. `broken`: any other answer, or the connection broke. */
  accepted: number
  refused: number
  broken: number
  /** Never sent, since every connection still waited for its answer. */
  heldBack: number
  over: boolean
}

const count: FloodCount = { due: 0, accepted: 0, refused: 0, broken: 0, heldBack: 0, over: false }

serve({}, (question: FloodQuestion): FloodCount => {
  if (question.kind === 'start') void flood(question)
  return count
})

async function flood(amounts: Extract<FloodQuestion, { kind: 'start' }>): Promise<void> {
  const idle = Array.from({ length: amounts.connections }, () => connection(new URL(amounts.target)))
  const open = new Set<Promise<void>>()
  const post = async (over: ReturnType<typeof connection>, index: number) => {
    const status = await over.post('/tasks', bodyOf(`${amounts.run}-${index}`, index))
    if (status >= 200 && status <= 299) count.accepted++
    else if (isRefusal(status)) count.refused++
    else count.broken++
    idle.push(over)
  }
  const total = Math.floor(amounts.rate * amounts.seconds)
  const began = now()
  while (count.due < total) {
    const until = Math.min(total, Math.floor(((now() - began) * amounts.rate) / 1000))
    for (; count.due < until; count.due++) {
      const free = idle.pop()
      if (free === undefined) {
        count.heldBack++
        continue
      }
      const posted = post(free, count.due).finally(() => open.delete(posted))
      open.add(posted)
    }
    await sleep(5)
  }
  await Promise.all(open)
  for (const one of idle) one.close()
  count.over = true
}
