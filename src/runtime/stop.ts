// Requests to stop this process: signals, and the end of the npm that started it.

const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
type StopSignal = (typeof signals)[number]
/** A person cannot press Ctrl-C twice so fast. */
const echoMs = 300

/**
 * Calls `onRequest` once for each request to stop. Under npm the terminal and systemd signal npm and this process, and npm forwards
 * its signal: a signal within `echoMs` is the same request. If npm was killed, this process stops too: nothing else would stop it.
 */
export function onStop(
  onRequest: (cause: { signal: StopSignal } | { parent: 'gone' }) => void,
  of: readonly StopSignal[] = ['SIGINT', 'SIGTERM']
): void {
  const underNpm = process.env['npm_lifecycle_event'] !== undefined
  let last = -Infinity
  for (const signal of of) {
    process.on(signal, () => {
      const isEcho = underNpm && performance.now() - last < echoMs
      last = performance.now()
      if (!isEcho) onRequest({ signal })
    })
  }
  if (!underNpm) return
  const { ppid } = process
  const watch = setInterval(() => {
    if (process.ppid === ppid) return
    clearInterval(watch)
    onRequest({ parent: 'gone' })
  }, 1_000)
  watch.unref()
}
