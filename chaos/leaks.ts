// Searches for planted secrets and issued tokens in all texts that people read.
import { readFileSync } from 'node:fs'
import type { History } from './history.ts'

/** A callback token, as src/domain/tokens.ts makes it. Only its last part is compared. */
const tokenShape = /v1\.[A-Za-z0-9_-]{8}\.[0-9a-z]{1,9}\.[a-z][a-z0-9-]{0,31}\.\d{1,10}\.([A-Za-z0-9_-]{43})/g

export function leaksIn(
  texts: Record<string, string>,
  canaries: Record<string, string>,
  tokens: readonly string[]
): History['leaks'] {
  const macs = new Set(tokens.map(token => token.slice(-43)))
  return Object.entries(texts).flatMap(([place, text]) => [
    ...Object.entries(canaries).flatMap(([secret, canary]) =>
      text.includes(canary) ? [{ place, secret }] : []
    ),
    ...([...text.matchAll(tokenShape)].some(([, mac]) => macs.has(mac ?? ''))
      ? [{ place, secret: 'a callback token' }]
      : [])
  ])
}

/** The times of log lines whose message begins with these words, ms since 1970. */
export function loggedAt(logs: readonly string[], words: string): number[] {
  const line = new RegExp(`"time":(\\d+),[^\\n]*"msg":"${words}`, 'g')
  return logs.flatMap(log => [...log.matchAll(line)].map(([, time]) => Number(time)))
}

/** Empty if the file does not exist. */
export function textOf(file: string): string {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return ''
  }
}
