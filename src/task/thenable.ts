/** Whatever `await` would wait for: what a handler returns may be a query builder, or a promise of another library. */
export const isThenable = <T>(value: T | PromiseLike<T>): value is PromiseLike<T> =>
  typeof (value as Partial<PromiseLike<T>> | null | undefined)?.then === 'function'
