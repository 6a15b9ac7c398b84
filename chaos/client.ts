// A producer's way to the service: one request, and what became of it.
// Not Node's own: of Node 20's a first fetch whose connection breaks while its parser still compiles never ends.
import { fetch } from 'undici'
import type { Try } from './history.ts'

export const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms))

/** A producer waits for an answer for so long. */
export const patienceMs = 4_000

export interface Answered extends Try {
  text: string
}

export async function ask(
  url: string,
  { method = 'GET', body, headers = {} }: { method?: string; body?: string; headers?: Record<string, string> }
): Promise<Answered> {
  const at = Date.now()
  try {
    const answer = await fetch(url, {
      method,
      headers: { ...headers, ...(body !== undefined && { 'content-type': 'application/json' }) },
      ...(body !== undefined && { body }),
      signal: AbortSignal.timeout(patienceMs)
    })
    const text = await answer.text()
    return { at, ms: Date.now() - at, status: answer.status, text }
  } catch {
    return { at, ms: Date.now() - at, status: 0, text: '' }
  }
}

/** Says neither yes nor no: whoever asked must ask again. */
export const isUnclear = (status: number): boolean => status === 0 || status === 429 || status >= 500

/** Of all in this process who ask again so many do at a time: a crowd would take from a service the time to recover. */
const mostAgain = 16
let again = 0
const waiting: (() => void)[] = []

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  while (again >= mostAgain) await new Promise<void>(resolve => waiting.push(resolve))
  again++
  try {
    return await work()
  } finally {
    again--
    waiting.shift()?.()
  }
}

/** Asks until the answer is clear or the signal aborts; each try is told. */
export async function askUntilClear(
  once: () => Promise<Answered>,
  tries: Try[],
  signal: AbortSignal
): Promise<Answered> {
  const told = async (): Promise<Answered> => {
    const answer = await once()
    tries.push({ at: answer.at, ms: answer.ms, status: answer.status })
    return answer
  }
  let answer = await told()
  for (let waitMs = 100; isUnclear(answer.status) && !signal.aborted; waitMs = Math.min(waitMs * 2, 1_000)) {
    await pause(waitMs)
    const last = answer
    answer = await inTurn(() => (signal.aborted ? Promise.resolve(last) : told()))
  }
  return answer
}
