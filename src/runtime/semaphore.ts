/** Limits how many may be inside. `enter` never waits: before it a caller awaits `full()` until there is room. */
export interface Semaphore {
  enter(): void
  leave(): void
  /** Undefined while there is room. Otherwise resolves when there is room again. */
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

/** Counts running work. It keeps no Set of the work, to save memory (docs/decisions.md). */
interface WaitGroup extends Pick<Semaphore, 'enter' | 'leave'> {
  /** Resolves when no work is running. */
  idle(): Promise<void>
}

export function waitGroup(): WaitGroup {
  const { enter, leave, full } = semaphore(1) // It is full, and so not idle, as soon as any work runs.
  return {
    enter,
    leave,
    async idle() {
      for (let some = full(); some; some = full()) await some
    }
  }
}
