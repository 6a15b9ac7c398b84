// Ends the programs of an example by kill -9, one by one, each while there is work.
import { setTimeout as sleep } from 'node:timers/promises'
import type { Program } from './programs.ts'

export interface Kills {
  /** Runs `work` for 1 to `count`: in one part, or in as many parts as there are kills. */
  during(
    count: number,
    work: (from: number, to: number) => Promise<void>,
    programs: readonly Program[]
  ): Promise<void>
}

/** The same seed gives the same moments, but a program may do something else at that moment. */
export function kills(times: number, seed: number): Kills {
  const random = randomOf(seed)

  /** All programs equally often, in random order. */
  function* victims(programs: readonly Program[]): Generator<Program, never> {
    for (;;) {
      const left = [...programs]
      while (left.length > 0) yield* left.splice(Math.floor(random() * left.length), 1)
    }
  }

  return {
    async during(count, work, programs) {
      if (times === 0) return await work(1, count)
      const turns = victims(programs)
      let usualMs = 1_000
      for (let part = 0; part < times; part++) {
        const [from, to] = [Math.floor((count * part) / times) + 1, Math.floor((count * (part + 1)) / times)]
        const began = performance.now()
        const killing = sleep(random() * usualMs).then(() => turns.next().value.kill())
        await Promise.all([work(from, to), killing])
        usualMs = Math.min(usualMs, performance.now() - began)
      }
    }
  }
}

/** mulberry32: numbers in [0, 1). */
function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
