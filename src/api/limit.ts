import { LRUCache } from 'lru-cache'

/** Token buckets by name, each with the tokens of a second. At most `names` are kept; the least recently used is dropped. */
export function limiter({ perSecond, names = 10_000 }: { perSecond: number; names?: number }) {
  const buckets = new LRUCache<string, { left: number; at: number }>({ max: names })
  return {
    /** 0: continue. Otherwise the seconds until there is a token. */
    take(name: string, nowMs: number): number {
      const bucket = buckets.get(name) ?? { left: perSecond, at: nowMs }
      buckets.set(name, bucket)
      bucket.left = Math.min(perSecond, bucket.left + (Math.max(0, nowMs - bucket.at) * perSecond) / 1000)
      bucket.at = nowMs
      if (bucket.left < 1) return Math.ceil((1 - bucket.left) / perSecond)
      bucket.left--
      return 0
    }
  }
}
