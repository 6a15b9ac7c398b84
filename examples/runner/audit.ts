// Checks the books again and again while a story runs: the invariant must hold at every moment, not only at the end.
import { setTimeout as sleep } from 'node:timers/promises'

export interface Audit {
  /** Stops. Resolves with the number of looks and the violations, each line once. Rejects if the books could not be read. */
  end(): Promise<{ looks: number; wrong: string[] }>
}

const pauseMs = 20

/** `look` resolves with the violations at that moment, one line each. */
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
  running.catch(() => {}) // `end` rejects with it
  return {
    async end() {
      isOver = true
      await running
      return { looks, wrong: [...wrong] }
    }
  }
}
