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

/** Waits for `work`, but at most `ms` milliseconds, and ignores its result. */
export async function waitAtMost(ms: number, work: Promise<unknown>): Promise<void> {
  await withTimeout(
    work.catch(() => {}),
    ms,
    () => {}
  )
}
