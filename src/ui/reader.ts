// Reading again and again: one read at a time, and of a list all the pages that are shown.

export type ReadEnd<Value> = { value: Value } | { error: Error }

export interface Reader {
  /** Resolves when an answer is there that was asked for no sooner than now. */
  read: () => Promise<void>
  /** Answers that still come are dropped. */
  stop: () => void
  /** How long the last read took. */
  tookMs: () => number
}

/** A read that is asked for while one runs begins when that one has ended: a slow answer is shown, not thrown away. */
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

/** What a list shows, and where it goes on. `partial`: not all rows up to there were looked at. */
export interface Listed<Row> {
  rows: Row[]
  nextCursor?: string | undefined
  partial?: boolean | undefined
}
export type AskPage<Row> = (cursor: string | undefined, limit: number) => Promise<Listed<Row>>

/** The API gives no more at once. */
const mostAtOnce = 200

/** The first `pages` pages of `size` rows, as they are now. */
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
