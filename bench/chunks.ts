/** Calls `chunk` for ranges of `size` from 0 to `count`. Logs its progress, and stops between two chunks if it is aborted. */
export async function inChunks(
  what: string,
  { count, size, signal }: { count: number; size: number; signal: AbortSignal },
  chunk: (from: number, to: number) => Promise<void>
): Promise<void> {
  const began = performance.now()
  let loggedAt = 0
  for (let from = 0; from < count; from += size) {
    signal.throwIfAborted()
    const to = Math.min(count, from + size)
    await chunk(from, to)
    const seconds = (performance.now() - began) / 1000
    if (seconds < loggedAt + 10 && to < count) continue
    loggedAt = seconds
    console.error(`  ${to} of ${count} ${what} in ${seconds.toFixed(1)} s`)
  }
}
