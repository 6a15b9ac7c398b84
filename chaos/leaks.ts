// Looks for planted secrets and for every token that was handed out, in all that leaves a process for eyes of people.
import { readFileSync } from 'node:fs'
import type { History } from './history.ts'

/** A callback token, as src/domain/tokens.ts makes them; what counts is its last part. */
const tokenShape = /v1\.[A-Za-z0-9_-]{8}\.[0-9a-z]{1,9}\.[a-z][a-z0-9-]{0,31}\.\d{1,10}\.([A-Za-z0-9_-]{43})/g

export function leaksIn(
  texts: Record<string, string>,
  canaries: Record<string, string>,
  tokens: readonly string[]
): History['leaks'] {
  const macs = new Set(tokens.map(token => token.slice(-43)))
  return Object.entries(texts).flatMap(([where, text]) => [
    ...Object.entries(canaries).flatMap(([what, secret]) => (text.includes(secret) ? [{ where, what }] : [])),
    ...([...text.matchAll(tokenShape)].some(([, mac]) => macs.has(mac ?? ''))
      ? [{ where, what: 'a callback token' }]
      : [])
  ])
}

/** When a log line began with these words, ms since 1970. */
export function saidAt(logs: readonly string[], words: string): number[] {
  const line = new RegExp(`"time":(\\d+),[^\\n]*"msg":"${words}`, 'g')
  return logs.flatMap(log => [...log.matchAll(line)].map(([, time]) => Number(time)))
}

/** A file that nobody wrote holds nothing. */
export function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
