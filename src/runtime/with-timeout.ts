/** Anything that `await` accepts: a handler may return a query builder, or a promise of another library. */
export const isThenable = <T>(value: T | PromiseLike<T>): value is PromiseLike<T> =>
  typeof (value as Partial<PromiseLike<T>> | null | undefined)?.then === 'function'

const expired = Symbol('expired')

/**
 * Settles like `work`, or after `ms` milliseconds like `late`, which may throw. `work` itself continues. After a blocked event
 * loop, an answer that has already arrived is read first and wins.
 */
export async function withTimeout<T, Late>(
  work: PromiseLike<T>,
  ms: number,
  late: () => Late
): Promise<T | Late> {
  let timer: NodeJS.Timeout | undefined
  let immediate: NodeJS.Immediate | undefined
  const timeout = new Promise<typeof expired>(resolve => {
    timer = setTimeout(() => {
      immediate = setImmediate(resolve, expired)
    }, ms)
  })
  try {
    const first = await Promise.race([work, timeout])
    return first === expired ? late() : first
  } finally {
    clearTimeout(timer)
    clearImmediate(immediate)
  }
}

/** Settles as `work` does; undefined once `signal` is aborted. `work` itself continues, and its later error is ignored. */
export async function untilAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T | undefined> {
  work.catch(() => {})
  if (signal.aborted) return undefined
  const over = new AbortController()
  const aborted = new Promise<undefined>(resolve => {
    signal.addEventListener('abort', () => resolve(undefined), { signal: over.signal })
  })
  try {
    return await Promise.race([work, aborted])
  } finally {
    over.abort()
  }
}

/** Waits until `work` settles, but no longer than `ms` milliseconds. Its result and its error are ignored. */
export async function waitAtMost(ms: number, work: Promise<unknown>): Promise<void> {
  await withTimeout(
    work.catch(() => {}),
    ms,
    () => {}
  )
}
