import type { History } from './history.ts'
import type { Verdict } from './judge.ts'

export function report(history: History, verdict: Verdict): string {
  return JSON.stringify({ history, verdict })
}
