// Looks at the books again and again while a story is played: what must hold at any moment, and not only at the end.
import { setTimeout as sleep } from 'node:timers/promises'

export interface Audit {
  /** Stops, and gives how often it has looked and what was wrong, each line once. Rejects when the books could not be read. */
  end(): Promise<{ looks: number; wrong: string[] }>
}

const pauseMs = 20

/** `look` resolves with what does not hold at its moment, one line each. */
export function audit(look: () => Promise<readonly string[]>): Audit {
  const wrong = new Set<string>()
  let looks = 0
  let isOver = false
  const running = (async () => {
    for (; !isOver; await sleep(pauseMs)) {
      for (const line of await look()) wrong.add(line)
      looks++
    }
  })()
  running.catch(() => {}) // it is told at the end
  return {
    async end() {
      isOver = true
      await running
      return { looks, wrong: [...wrong] }
    }
  }
}
