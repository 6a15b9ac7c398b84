// One request of a producer to the service, and its result.
// Not Node's own fetch: in Node 20, a first fetch whose connection breaks while its parser still compiles never ends.
import { fetch } from 'undici'
import type { Try } from './history.ts'

export const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

/** How long a producer waits for its first answer. */
export const patienceMs = 4_000
/** Each try that got no answer doubles the time: on a starved machine tries of 4 s might never get one, and keep it busy. */
const mostPatienceMs = 32_000

export interface HttpAnswer extends Try {
  text: string
}

export async function ask(
  url: string,
  {
    method = 'GET',
    body,
    headers = {},
    waitMs = patienceMs
  }: { method?: string; body?: string; headers?: Record<string, string>; waitMs?: number }
): Promise<HttpAnswer> {
  const at = Date.now()
  try {
    const answer = await fetch(url, {
      method,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body }),
      signal: AbortSignal.timeout(waitMs)
    })
    const text = await answer.text()
    return { at, ms: Date.now() - at, status: answer.status, text }
  } catch {
    return { at, ms: Date.now() - at, status: 0, text: '' }
  }
}

/** Neither accepted nor refused: the client must retry. */
export const isUnclear = (status: number): boolean => status === 0 || status === 429 || status >= 500

/** Retries that run at the same time in this process. More would slow down the recovery of the service. */
const mostRetries = 16
let retries = 0
const waiting: (() => void)[] = []

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  while (retries >= mostRetries) await new Promise<void>(resolve => waiting.push(resolve))
  retries++
  try {
    return await work()
  } finally {
    retries--
    waiting.shift()?.()
  }
}

/** Retries until the answer is clear or the signal aborts. Adds each try to `tries`. `once` gets the time to wait for the answer. */
export async function askUntilClear(
  once: (waitMs: number) => Promise<HttpAnswer>,
  tries: Try[],
  signal: AbortSignal
): Promise<HttpAnswer> {
  let patience = patienceMs
  const recorded = async (): Promise<HttpAnswer> => {
    const answer = await once(patience)
    if (answer.status === 0 && answer.ms >= patience) patience = Math.min(patience * 2, mostPatienceMs)
    tries.push({ at: answer.at, ms: answer.ms, status: answer.status })
    return answer
  }
  let answer = await recorded()
  for (
    let pauseMs = 100;
    isUnclear(answer.status) && !signal.aborted;
    pauseMs = Math.min(pauseMs * 2, 1_000)
  ) {
    await pause(pauseMs)
    const last = answer
    answer = await inTurn(() => (signal.aborted ? Promise.resolve(last) : recorded()))
  }
  return answer
}
