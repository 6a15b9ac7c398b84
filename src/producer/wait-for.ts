import type { TaskAnswer } from './answers.ts'
import { AckboxError, isTransient, pauseMs, sleep } from './call.ts'

/** The longest wait of one request. Many proxies end a connection that is silent for 30 s or 60 s. */
const longestS = 25

/**
 * Asks until the task has ended, or the time is over. `ask` gets the seconds for which Ackbox may delay its answer. Throws the error of the
 * last request if that failed.
 */
export async function waitFor(
  ask: (seconds: number) => Promise<TaskAnswer>,
  { timeoutMs = 60_000, signal }: { timeoutMs?: number | undefined; signal?: AbortSignal | undefined }
): Promise<TaskAnswer> {
  const end = performance.now() + timeoutMs
  let failures = 0
  for (;;) {
    const leftMs = Math.max(0, end - performance.now())
    const askedAt = performance.now()
    const answer = await ask(Math.min(longestS, Math.max(1, Math.ceil(leftMs / 1_000)))).catch(
      (err: unknown) => {
        if (err instanceof AckboxError) return err
        throw err
      }
    )
    if (answer instanceof AckboxError) {
      const isComing = answer.code === 'TASK_NOT_FOUND'
      failures = isComing ? 0 : failures + 1
      const pause = isComing ? 250 : pauseMs(answer, failures)
      const nowLeftMs = end - performance.now()
      if (nowLeftMs <= 0 || !(isComing || isTransient(answer))) throw answer
      await sleep(Math.min(pause, nowLeftMs), signal)
      continue
    }
    failures = 0
    const isOver = answer.status !== 'SENDING' && answer.status !== 'PREPARED'
    if (isOver || performance.now() >= end) return answer
    // The API delays the answer for a SENDING task, but not for a half message, nor while its process stops.
    if (performance.now() - askedAt < 500) await sleep(Math.min(500, leftMs), signal)
  }
}
