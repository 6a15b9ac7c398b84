/** How many may be inside at once: whoever brings more in waits until there is room. */
export interface Semaphore {
  enter(): void
  leave(): void
  /** undefined while there is room; else resolves when there is again. */
  full(): Promise<void> | undefined
}

export function semaphore(most: number): Semaphore {
  let inside = 0
  let waiting: (() => void)[] = []
  return {
    enter() {
      inside++
    },
    leave() {
      inside--
      if (waiting.length === 0 || inside >= most) return
      const resolved = waiting
      waiting = []
      for (const resolve of resolved) resolve()
    },
    full: () => (inside < most ? undefined : new Promise(resolve => waiting.push(resolve)))
  }
}

/** Counts what is under way. No Set of it, for the memory's sake (docs/decisions.md). */
export interface InFlight extends Pick<Semaphore, 'enter' | 'leave'> {
  /** Resolves when nothing is. */
  idle(): Promise<void>
}

export function inFlight(): InFlight {
  const { enter, leave, full } = semaphore(1) // A single one is enough.
  return {
    enter,
    leave,
    async idle() {
      for (let some = full(); some; some = full()) await some
    }
  }
}
