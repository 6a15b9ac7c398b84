/** From 0 to `count`, so many at a time; says how far it is, and stops between two chunks when it is interrupted. */
export async function inChunks(
  what: string,
  { count, size, signal }: { count: number; size: number; signal: AbortSignal },
  chunk: (from: number, to: number) => Promise<void>
): Promise<void> {
  const began = performance.now()
  let told = 0
  for (let from = 0; from < count; from += size) {
    signal.throwIfAborted()
    const to = Math.min(count, from + size)
    await chunk(from, to)
    const seconds = (performance.now() - began) / 1000
    if (seconds < told + 10 && to < count) continue
    told = seconds
    console.error(`  ${to} of ${count} ${what} in ${seconds.toFixed(1)} s`)
  }
}
