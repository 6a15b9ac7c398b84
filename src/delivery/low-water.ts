// The clock from which on a look must read. Ended deliveries leave entries in the index of due deliveries. Vacuum cannot remove them while
// a snapshot is open. A look from the first entry on would read all of them, each time.

/** The result of a look. */
interface Seen {
  now: Date
  /** By downstream: its oldest open clock that has ended, ms since 1970. No entry without such a clock. */
  oldest: ReadonlyMap<string, number>
}

/** Undefined: from the first entry on. */
export type From = (downstream: string) => number | undefined

export interface LowWater {
  /** No clock before this is open, as far as this process knows. */
  from: From
  /** Looks from the marks on, or now and then at all entries, and moves the marks to the oldest clocks that it read. */
  look<Looked extends Seen>(ask: (from: From) => Promise<Looked>): Promise<Looked>
  /** Other processes may have written clocks that this process could not see. The next look is a full look. */
  forget(): void
}

/** Each look begins this long before the end of the last one: a clock becomes visible at its commit, a little after its time. */
export const overlapMs = 1_000
/** Full looks take 1 / `share` of the time. While they are cheap, nearly every look is full. */
const share = 100
const fullLookMs = 60_000

/** The ms from a full look, which took `lookMs`, until the next one. */
export const untilFullLook = (lookMs: number): number => Math.min(fullLookMs, share * lookMs)

export function lowWater(downstreams: readonly string[]): LowWater {
  const marks = new Map<string, number>()
  const nothing: From = () => undefined
  let lookedAt = -Infinity
  let fullFrom = -Infinity
  const from: From = downstream => marks.get(downstream)
  const forget = (): void => {
    marks.clear()
    fullFrom = -Infinity
  }
  return {
    from,
    forget,
    async look(ask) {
      const began = performance.now()
      const isFull = began >= fullFrom
      const seen = await ask(isFull ? nothing : from).catch((err: unknown) => {
        forget()
        throw err
      })
      const now = seen.now.getTime()
      // Another server, whose clock is behind: its due deliveries are below the marks.
      if (now < lookedAt) forget()
      else {
        for (const name of downstreams)
          marks.set(name, Math.min(seen.oldest.get(name) ?? Infinity, now - overlapMs))
        const ended = performance.now()
        // A full look finds what was committed after the overlap.
        if (isFull) fullFrom = ended + untilFullLook(ended - began)
      }
      lookedAt = now
      return seen
    }
  }
}
