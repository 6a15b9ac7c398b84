import { sleep } from '../runtime/repeat.ts'
import { isInfrastructure } from './pool.ts'

interface BatcherOptions<In, Out> {
  /** One statement and one commit. Returns one result for each item, in order; of several statements, some may have failed. */
  write: (items: In[]) => Promise<Out[] | Partly<Out>>
  /** The most items of one statement. */
  max: number
  /** Statements at a time (2). While these run, the next one gathers items. */
  inFlight?: number
  /** For so long after a statement the next one gathers items (0), unless it is full or has an urgent item. */
  restMs?: number
  /** An error that one item may have caused though none is wrong: the items are then written one at a time. */
  isOfOne?: (err: unknown) => boolean
  /** Does a caller wait for this item? */
  isUrgent?: (item: In) => boolean
  /** While PostgreSQL is away, write again until it is back or this is aborted: for answers that exist nowhere else. */
  retryUntilWritten?: AbortSignal
}

/** The results of the items that are written: they are answered and not written again. Undefined: `err` prevented the item. */
export interface Partly<Out> {
  outs: (Out | undefined)[]
  err: unknown
}

export interface Batcher<In, Out> {
  add(item: In): Promise<Out>
  /** Resolves when nothing waits and nothing is being written. */
  idle(): Promise<void>
  /** Items that wait or are being written. */
  readonly size: number
}

interface Entry<In, Out> {
  item: In
  resolve: (out: Out) => void
  reject: (err: unknown) => void
}

/** Group commit: an idle system writes each item at once, a busy one shares statements and commits. */
export function batcher<In, Out>(options: BatcherOptions<In, Out>): Batcher<In, Out> {
  const { max, inFlight = 2, restMs = 0 } = options
  let waiting: Entry<In, Out>[] = []
  let writing = 0
  let size = 0
  let woken = false
  let restedAt = 0
  let isUrgent = false
  let resting: NodeJS.Timeout | undefined
  let idlers: (() => void)[] = []

  const isFull = (): boolean => writing >= inFlight

  function wake(): void {
    if (woken || isFull() || waiting.length === 0) return
    const restLeft = restedAt - performance.now()
    if (restLeft > 0 && !isUrgent && waiting.length < max) {
      resting ??= setTimeout(() => {
        resting = undefined
        wake()
      }, restLeft)
      return
    }
    woken = true
    // Not at once: items that are added in the same turn, such as a posted batch, share a statement.
    queueMicrotask(() => {
      woken = false
      while (!isFull() && waiting.length > 0) void writeNext()
    })
  }

  async function writeNext(): Promise<void> {
    const entries = waiting.length <= max ? waiting : waiting.slice(0, max)
    waiting = waiting.length <= max ? [] : waiting.slice(max)
    isUrgent &&= waiting.length > 0
    writing++
    await settle(options, entries)
    writing--
    size -= entries.length
    if (restMs > 0) restedAt = performance.now() + restMs
    wake()
    if (size > 0) return
    const resolved = idlers
    idlers = []
    for (const resolve of resolved) resolve()
  }

  return {
    add: item =>
      new Promise((resolve, reject) => {
        size++
        waiting.push({ item, resolve, reject })
        isUrgent ||= options.isUrgent?.(item) ?? false
        wake()
      }),
    idle: () =>
      new Promise(resolve => {
        if (size === 0) resolve()
        else idlers.push(resolve)
      }),
    get size() {
      return size
    }
  }
}

/** Writes these and answers each; never rejects. A statement that fails because of an item is split, so that this item fails alone. */
async function settle<In, Out>(options: BatcherOptions<In, Out>, entries: Entry<In, Out>[]): Promise<void> {
  const failed = await persist(options, entries)
  if (!failed) return
  const { left, err } = failed
  if (left.length > 1 && isDataError(err)) {
    const half = left.length >> 1
    await settle(options, left.slice(0, half))
    await settle(options, left.slice(half))
  } else if (left.length > 1 && options.isOfOne?.(err)) {
    // Not in halves: each of their statements could take as long again before it fails.
    for (const entry of left) await settle(options, [entry])
  } else {
    for (const entry of left) entry.reject(err)
  }
}

const collisions = 10

/** Answers the items that it can write. Returns the others, and the error. */
async function persist<In, Out>(
  { write, retryUntilWritten: stop }: BatcherOptions<In, Out>,
  entries: Entry<In, Out>[]
): Promise<{ left: Entry<In, Out>[]; err: unknown } | undefined> {
  let left = entries
  for (let collided = 0, away = 0; ;) {
    let err: unknown
    try {
      const written = await write(left.map(entry => entry.item))
      if (Array.isArray(written)) {
        answer(left, written)
        return undefined
      }
      left = answerSome(left, written.outs)
      err = written.err
    } catch (thrown) {
      err = thrown
    }
    if (isCollision(err) && ++collided < collisions) {
      await sleep(Math.random() * 5 * collided)
    } else if (stop && !stop.aborted && isInfrastructure(err)) {
      await sleep(Math.min(50 * 2 ** away++, 1_000) * (0.75 + Math.random() / 4), stop)
    } else {
      return { left, err }
    }
  }
}

function answer<In, Out>(entries: Entry<In, Out>[], outs: Out[]): void {
  if (outs.length !== entries.length)
    throw new Error(`${entries.length} items were written, ${outs.length} answered`)
  for (let i = 0; i < entries.length; i++) entries[i]!.resolve(outs[i]!)
}

/** Returns the entries that have no answer yet. */
function answerSome<In, Out>(entries: Entry<In, Out>[], outs: (Out | undefined)[]): Entry<In, Out>[] {
  return entries.filter((entry, i) => {
    const out = outs[i]
    if (out !== undefined) entry.resolve(out)
    return out === undefined
  })
}

/** A deadlock or a serialization failure: no item is wrong, and the next try succeeds. */
function isCollision(err: unknown): boolean {
  return ['40P01', '40001'].includes(sqlState(err))
}

/** 22: the value; 23: a constraint; 54: too large for an index or a row. */
export function isDataError(err: unknown): boolean {
  return /^(22|23|54)\w{3}$/.test(sqlState(err))
}

/** 57014: the statement took too long; 55P03: it waited too long for a lock. */
export const isTimeout = (err: unknown): boolean => ['57014', '55P03'].includes(sqlState(err))

function sqlState(err: unknown): string {
  const code = err instanceof Error ? (err as { code?: unknown }).code : undefined
  return typeof code === 'string' ? code : ''
}
