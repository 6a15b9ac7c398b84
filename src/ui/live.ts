// The live updates: one stream of changes for all pages.
import { signal } from '@preact/signals'
import { readSession } from './api.ts'

export interface LiveChange {
  kind: 'failure' | 'task' | 'audit' | 'all'
  downstream?: string
  taskNo?: string
}
const listeners = new Set<(changes: LiveChange[]) => void>()
/** Calls `listener` with the changes. Returns the function that ends it. */
export function onChanges(listener: (changes: LiveChange[]) => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}
export const live = signal(false)
let source: EventSource | undefined
/** The task whose changes are in the stream too. Undefined: the stream is not wanted. */
let watched: string | undefined
/** Whether the pages that are still shown have missed changes. */
let isBehind = false
let reopening: ReturnType<typeof setTimeout> | undefined
/** The minimum wait. A random part of up to the same length is added, so that many pages do not reconnect at once. */
const reopenMs = 2_000

/**
 * Opens one stream for the whole page, while it is visible: over HTTP/1.1 a browser has six connections to a host, and six tabs in
 * the background would leave none for the visible tab. After a gap everything is read again.
 */
export function listen(taskNo: string): void {
  if (watched === taskNo) return
  close()
  watched = taskNo
  if (!document.hidden) open(isBehind)
  isBehind = false
}
document.addEventListener('visibilitychange', () => {
  if (document.hidden) close()
  else if (watched !== undefined && !source) open(true)
})
function open(wasOpen: boolean): void {
  const opened = new EventSource(`/events${watched ? `?taskNo=${encodeURIComponent(watched)}` : ''}`)
  source = opened
  opened.addEventListener('open', () => {
    live.value = true
    if (wasOpen) tell([{ kind: 'all' }])
    wasOpen = true
  })
  opened.addEventListener('error', () => {
    live.value = false
    // After an answer other than 200 (429, or 502 of a proxy) a browser closes the stream and does not reconnect.
    if (opened.readyState !== EventSource.CLOSED || opened !== source) return
    reopening = setTimeout(() => open(true), reopenMs * (1 + Math.random()))
    // Or 401: the session has ended. A stream does not tell its status.
    readSession().catch(() => {})
  })
  opened.addEventListener('changed', event =>
    tell(JSON.parse((event as MessageEvent<string>).data) as LiveChange[])
  )
}
export function stopListening(): void {
  close()
  watched = undefined
  isBehind = true
}
/** Stops listening, and no page is left that could have missed changes. */
export function forget(): void {
  stopListening()
  isBehind = false
}
function close(): void {
  clearTimeout(reopening)
  source?.close()
  source = undefined
  live.value = false
}
const tell = (changes: LiveChange[]): void => {
  for (const listener of listeners) listener(changes)
}
