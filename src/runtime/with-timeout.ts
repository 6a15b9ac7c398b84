/** Whatever `await` would wait for: what a handler returns may be a query builder, or a promise of another library. */
export const isThenable = <T>(value: T | PromiseLike<T>): value is PromiseLike<T> =>
  typeof (value as Partial<PromiseLike<T>> | null | undefined)?.then === 'function'

const expired = Symbol('expired')

/**
 * Settles as `work` does; after `ms` milliseconds as `late` does, which may throw. `work` itself goes on. Where the event loop
 * stood still, an answer that has arrived meanwhile is read first and wins.
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

/** Waits for `work`, but no longer than `ms` milliseconds, whatever it comes to. */
export async function waitAtMost(ms: number, work: Promise<unknown>): Promise<void> {
  await withTimeout(
    work.catch(() => {}),
    ms,
    () => {}
  )
}
