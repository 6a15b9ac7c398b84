/**
 * A signal that aborts with `stop`, or after `ms`. Call `end` when the work is over. Not AbortSignal.any of AbortSignal.timeout: in Node 20 it
 * never fires if a garbage collection comes before.
 */
export function limitedSignal(stop: AbortSignal, ms: number): { signal: AbortSignal; end: () => void } {
  const over = new AbortController()
  const abort = (): void => {
    clearTimeout(timer)
    over.abort(stop.aborted ? stop.reason : new Error(`not ended within ${Math.round(ms)} ms`))
  }
  const timer = setTimeout(abort, Math.max(0, ms))
  if (stop.aborted) abort()
  stop.addEventListener('abort', abort, { once: true })
  return {
    signal: over.signal,
    end() {
      clearTimeout(timer)
      stop.removeEventListener('abort', abort)
    }
  }
}
