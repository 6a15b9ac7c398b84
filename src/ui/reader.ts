// Repeated reads: one read at a time. A list reads all its shown pages.

export type ReadEnd<Value> = { value: Value } | { error: Error }

export interface Reader {
  /** Resolves after the end of a read that begins now or later. */
  read: () => Promise<void>
  /** Later answers are dropped. */
  stop: () => void
  /** The duration of the last read. */
  tookMs: () => number
}

/** A read that is requested during another read begins after the end of that one, so that a slow answer is shown and not dropped. */
export function openReader<Value>(ask: () => Promise<Value>, tell: (end: ReadEnd<Value>) => void): Reader {
  let isOver = false
  let took = 0
  let running: Promise<void> | undefined
  let next: Promise<void> | undefined
  const readOnce = async (): Promise<void> => {
    const began = Date.now()
    let end: ReadEnd<Value>
    try {
      end = { value: await ask() }
    } catch (error) {
      end = { error: error as Error }
    }
    took = Date.now() - began
    if (!isOver) tell(end)
  }
  const start = (): Promise<void> => {
    running = readOnce().finally(() => {
      running = undefined
    })
    return running
  }
  return {
    read() {
      if (isOver) return Promise.resolve()
      if (!running) return start()
      next ??= running.then(() => {
        next = undefined
        return isOver ? undefined : start()
      })
      return next
    },
    stop() {
      isOver = true
    },
    tookMs: () => took
  }
}

/** The rows of a list, and the cursor of the next page. `partial`: not all rows up to the cursor were searched. */
export interface Listed<Row> {
  rows: Row[]
  nextCursor?: string | undefined
  partial?: boolean | undefined
}
export type AskPage<Row> = (cursor: string | undefined, limit: number) => Promise<Listed<Row>>

/** The limit of the API for one page. */
const mostAtOnce = 200

/** Reads the first `pages` pages of `size` rows. */
export async function readPages<Row>(ask: AskPage<Row>, pages: number, size: number): Promise<Listed<Row>> {
  const rows: Row[] = []
  let last = await ask(undefined, Math.min(mostAtOnce, pages * size))
  rows.push(...last.rows)
  for (let n = 1; n < pages && rows.length < pages * size && last.nextCursor !== undefined; n++) {
    last = await ask(last.nextCursor, Math.min(mostAtOnce, pages * size - rows.length))
    rows.push(...last.rows)
  }
  return { ...last, rows }
}
