import { sleep } from '../runtime/repeat.ts'
import { isInfrastructure } from './pool.ts'
import { isError } from '../runtime/text-of.ts'

interface BatcherOptions<In, Out> {
  /**
   * One statement and one commit. Returns one result for each item, in order; of several statements, some may have failed. `lockMs`:
   * the longest wait for a locked row. It counts only with `retryUntilWritten`.
   */
  write: (items: In[], lockMs: number) => Promise<Out[] | Partly<Out>>
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
  /**
   * While PostgreSQL is away, write again until it is back or this is aborted: for answers that exist nowhere else. An item whose row
   * is locked is written again beside the others.
   */
  retryUntilWritten?: AbortSignal
  /** With `retryUntilWritten`: is this item rejected if its row is locked? For what a later look finds again. */
  skipsLocked?: (item: In) => boolean
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

/** The first wait for a locked row. A commit of another process holds it for milliseconds. */
const patientMs = 500
/** While it is known that a row stays locked: each group with such a row is split until the row is found, with a wait for each part. */
const hastyMs = 20

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
  /** They wait for a lock that others hold, beside the rest. */
  let lockedOut: Entry<In, Out>[] = []
  let isRetrying = false

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
    const left = await writeAndAnswer(options, entries, isRetrying ? hastyMs : patientMs)
    writing--
    if (restMs > 0) restedAt = performance.now() + restMs
    wake()
    leave(entries.length, left)
    if (lockedOut.length > 0 && !isRetrying) void retry()
  }

  function leave(count: number, left: readonly Entry<In, Out>[]): void {
    lockedOut.push(...left)
    size -= count - left.length
    if (size > 0) return
    const resolved = idlers
    idlers = []
    for (const resolve of resolved) resolve()
  }

  /** Writes the items that wait for a lock, until each is written. */
  async function retry(): Promise<void> {
    isRetrying = true
    for (let tries = 0; lockedOut.length > 0; tries++) {
      await pause(tries, options.retryUntilWritten)
      const all = lockedOut
      lockedOut = []
      for (let at = 0; at < all.length; at += max) {
        const entries = all.slice(at, at + max)
        leave(entries.length, await writeAndAnswer(options, entries, hastyMs))
      }
      if (lockedOut.length < all.length) tries = 0
    }
    isRetrying = false
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

/**
 * Writes these and answers each, except for those that it returns: they wait for a lock. Never rejects. A statement that fails because of a
 * lock, or because of something that may be one item's, is split, so that one bad or locked item fails alone.
 */
async function writeAndAnswer<In, Out>(
  options: BatcherOptions<In, Out>,
  entries: Entry<In, Out>[],
  lockMs: number
): Promise<Entry<In, Out>[]> {
  const failed = await persist(options, entries, lockMs)
  if (!failed) return []
  const { left, err } = failed
  const isHeld = options.retryUntilWritten !== undefined && isTimeout(err)
  if (left.length > 1 && (isHeld || mayBeOfOne(err))) {
    const half = left.length >> 1
    const wait = isHeld ? hastyMs : lockMs
    const first = await writeAndAnswer(options, left.slice(0, half), wait)
    return [...first, ...(await writeAndAnswer(options, left.slice(half), wait))]
  }
  if (left.length > 1 && options.isOfOne?.(err)) {
    // Not in halves: each of their statements could take as long again before it fails.
    const lockedOut: Entry<In, Out>[] = []
    for (const entry of left) lockedOut.push(...(await writeAndAnswer(options, [entry], lockMs)))
    return lockedOut
  }
  const waits = isHeld && !options.retryUntilWritten?.aborted
  return left.filter(entry => {
    const stays = waits && !options.skipsLocked?.(entry.item)
    if (!stays) entry.reject(err)
    return stays
  })
}

const collisions = 10

/** Answers the items that it can write. Returns the others, and the error. */
async function persist<In, Out>(
  { write, retryUntilWritten: stop }: BatcherOptions<In, Out>,
  entries: Entry<In, Out>[],
  lockMs: number
): Promise<{ left: Entry<In, Out>[]; err: unknown } | undefined> {
  let left = entries
  for (let collided = 0, away = 0; ;) {
    let err: unknown
    try {
      const written = await write(
        left.map(entry => entry.item),
        lockMs
      )
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
    } else if (stop && !stop.aborted && isAway(err)) {
      await pause(away++, stop)
    } else {
      return { left, err }
    }
  }
}

const pause = (tries: number, stop: AbortSignal | undefined): Promise<void> =>
  sleep(Math.min(50 * 2 ** tries, 1_000) * (0.75 + Math.random() / 4), stop)

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
export function isCollision(err: unknown): boolean {
  return ['40P01', '40001'].includes(sqlState(err))
}

/** One item may have caused the error: by its values, a trigger or a corrupted row. False for errors that are not PostgreSQL's. */
const mayBeOfOne = (err: unknown): boolean =>
  /^[0-9A-Z]{5}$/.test(sqlState(err)) && !isInfrastructure(err) && !isCollision(err)

/**
 * The same, where the item is rejected for it. 42: a right, a table or a function is missing; 25 and 26: the session is in another state, as
 * behind a pooler. Every item would be rejected.
 */
export const refusesItem = (err: unknown): boolean => mayBeOfOne(err) && !/^(25|26|42)/.test(sqlState(err))

/** XX000: something that PostgreSQL did not expect, such as an object that was dropped at this moment. It says nothing about the item. */
export const isInternal = (err: unknown): boolean => sqlState(err) === 'XX000'

/**
 * One of the rows that a statement read may have caused the error, by its values or its size. 53200 and 53400: memory, or a temporary file.
 * An error without a SQLSTATE is one of the client, which could not read an answer.
 */
export const mayBeOfRow = (err: unknown): boolean => {
  const state = sqlState(err)
  return (
    refusesItem(err) ||
    isTimeout(err) ||
    /^53[24]00$/.test(state) ||
    (!/^[0-9A-Z]{5}$/.test(state) && !isInfrastructure(err))
  )
}

/** 57014: the statement took too long, perhaps as it waited for several locks; 55P03: it waited too long for one. Nothing of it is written. */
export const isTimeout = (err: unknown): boolean => ['57014', '55P03'].includes(sqlState(err))

/**
 * Does the error mean that the database is away? One statement may run into its time limit for a reason of its own, such as a long table or
 * a locked row: that alone must not turn POSTs into 503.
 */
export const isAway = (err: unknown): boolean => isInfrastructure(err) && !isTimeout(err)

function sqlState(err: unknown): string {
  if (!isError(err)) return ''
  const { code } = err as { code?: unknown }
  // drizzle's own errors carry PostgreSQL's as their cause.
  return typeof code === 'string' ? code : sqlState(err.cause)
}
