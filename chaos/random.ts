// Repeatable chance: every stream of numbers follows from the seed and a name.
import { createHash } from 'node:crypto'

export interface Chance {
  /** In [0, 1). */
  next(): number
  /** A whole number from `low` to `high`, both included. */
  whole(low: number, high: number): number
  hit(probability: number): boolean
  pick<T>(from: readonly [T, ...T[]]): T
  shuffled<T>(items: readonly T[]): T[]
}

/** Small fast counter (sfc32), seeded by SHA-256 over seed and name, so that streams do not resemble one another. */
export function chance(seed: number, name: string): Chance {
  const hash = createHash('sha256').update(`${seed}:${name}`).digest()
  let [a, b, c, counter] = [hash.readInt32LE(0), hash.readInt32LE(4), hash.readInt32LE(8), 1]
  const next = (): number => {
    const sum = (a + b + counter) | 0
    counter = (counter + 1) | 0
    a = b ^ (b >>> 9)
    b = (c + (c << 3)) | 0
    c = (((c << 21) | (c >>> 11)) + sum) | 0
    return (sum >>> 0) / 2 ** 32
  }
  const whole = (low: number, high: number): number => low + Math.floor(next() * (high - low + 1))
  return {
    next,
    whole,
    hit: probability => next() < probability,
    pick: from => from[whole(0, from.length - 1)] ?? from[0],
    shuffled(items) {
      const all = [...items]
      for (let last = all.length - 1; last > 0; last--) {
        const at = whole(0, last)
        const [one, other] = [all[at], all[last]]
        if (one !== undefined && other !== undefined) [all[at], all[last]] = [other, one]
      }
      return all
    }
  }
}

/** A name by chance, as likely as its weight. */
export function weighted<Name extends string>(by: Chance, weights: Record<Name, number>): Name {
  const all = Object.entries(weights) as [Name, number][]
  let left = by.next() * all.reduce((sum, [, weight]) => sum + weight, 0)
  for (const [name, weight] of all) {
    left -= weight
    if (left < 0) return name
  }
  return (all.at(-1) as [Name, number])[0]
}
