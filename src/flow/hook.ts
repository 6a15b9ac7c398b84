/** The longest a handler's hook may take. */
const hookMs = 5_000

/** What a hook returned, or a rejection after 5 s: a hook that hangs fails its own attempt and nothing else. */
export function within<T>(name: string, returned: T | Promise<T>): T | Promise<T> {
  return returned instanceof Promise ? inTime(name, returned) : returned
}

async function inTime<T>(name: string, returned: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${name} took longer than ${hookMs} ms`)), hookMs)
  })
  try {
    return await Promise.race([returned, tooLate])
  } finally {
    clearTimeout(timer)
  }
}

/** What a hook threw, short enough for a reason. */
export const messageOf = (err: unknown): string =>
  (err instanceof Error ? err.message : String(err)).slice(0, 200)
