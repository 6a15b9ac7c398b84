// The state of all pages: the session, the address, the language, the theme, a clock, and the stream of changes.
import { computed, signal } from '@preact/signals'
import { useEffect, useRef, useState } from 'preact/hooks'
import { openReader, readPages, type AskPage, type Listed, type Reader } from './reader.ts'
import { en } from './texts/en.ts'
import { zh } from './texts/zh.ts'

export interface Session {
  signedIn: boolean
  auth: boolean
  version: string
  name?: string
  scopes?: string[]
  messageCodes?: string[] | null
  csrf?: string
}

export const session = signal<Session>({ signedIn: false, auth: true, version: '' })
export const may = (scope: string): boolean => session.value.scopes?.includes(scope) ?? false

/** Reads a stored setting. Null if the browser refuses storage. */
export function remembered(name: string): string | null {
  try {
    return localStorage.getItem(`ackbox.${name}`)
  } catch {
    return null
  }
}
export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`ackbox.${name}`, value)
  } catch {
    // Without storage the setting is lost.
  }
}

export const here = signal(new URL(location.href))
/** Opens a path like `/ui/tasks?q=…` without a reload of the page. */
export function go(path: string, { replace = false } = {}): void {
  if (replace) history.replaceState(null, '', path)
  else {
    history.pushState(null, '', path)
    scrollTo(0, 0)
  }
  here.value = new URL(location.href)
}
export const page = computed(() => here.value.pathname.replace(/^\/ui\/?/, '').split('/')[0] || 'overview')
export const param = (name: string): string => here.value.searchParams.get(name) ?? ''

export type Language = 'en' | 'zh'
const firstLanguage = here.value.searchParams.get('lang') ?? remembered('language') ?? navigator.language
export const language = signal<Language>(firstLanguage.startsWith('zh') ? 'zh' : 'en')
export const texts = computed(() => (language.value === 'zh' ? zh : en))
export function speak(next: Language): void {
  language.value = next
  remember('language', next)
}

export type Theme = 'auto' | 'light' | 'dark'
const firstTheme = here.value.searchParams.get('theme') ?? remembered('theme')
export const theme = signal<Theme>(firstTheme === 'light' || firstTheme === 'dark' ? firstTheme : 'auto')

/** The difference to the server's time, because the clock of this machine may be wrong. */
const aheadMs = signal(0)
/** `serverMs` is rounded down to a second, so a difference below two seconds is ignored. */
export const setClock = (serverMs: number): void => {
  const ahead = serverMs - Date.now()
  aheadMs.value = Math.abs(ahead) < 2_000 ? 0 : ahead
}
export const now = signal(new Date())
setInterval(() => {
  now.value = new Date(Date.now() + aheadMs.value)
}, 1_000)

export interface Change {
  kind: 'failure' | 'task' | 'audit' | 'all'
  downstream?: string
  taskNo?: string
}
const listeners = new Set<(changes: Change[]) => void>()
export const live = signal(false)
let source: EventSource | undefined
/** The task whose changes are in the stream too. Undefined: the stream is not wanted. */
let watched: string | undefined
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
  if (!document.hidden) open(false)
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
  })
  opened.addEventListener('changed', event =>
    tell(JSON.parse((event as MessageEvent<string>).data) as Change[])
  )
}
export function stopListening(): void {
  close()
  watched = undefined
}
function close(): void {
  clearTimeout(reopening)
  source?.close()
  source = undefined
  live.value = false
}
const tell = (changes: Change[]): void => {
  for (const listener of listeners) listener(changes)
}

export interface Loaded<Value> {
  value: Value | undefined
  error: Error | undefined
  reload: () => void
}
interface Again {
  kinds?: Change['kind'][]
  everyMs?: number
}

/**
 * The result of `read`. It is read again when `key` changes, after a change of one of `kinds`, and every `everyMs` while the page is
 * visible. The old value is shown until the new value arrives.
 */
export function useLoaded<Value>(key: string, read: () => Promise<Value>, again: Again = {}): Loaded<Value> {
  const { read: readAgain, ...loaded } = useReader(key, read, again)
  return { ...loaded, reload: () => void readAgain() }
}

export interface LoadedList<Row> extends Loaded<Listed<Row>> {
  /** Reads one more page. */
  more: () => Promise<void>
}

/** The same for a list, in pages of `size` rows. All shown pages are read again. */
export function useList<Row>(
  key: string,
  ask: AskPage<Row>,
  { size = 50, ...again }: Again & { size?: number } = {}
): LoadedList<Row> {
  const shown = useRef({ key, pages: 1 })
  if (shown.current.key !== key) shown.current = { key, pages: 1 }
  const { read, ...loaded } = useReader(key, () => readPages(ask, shown.current.pages, size), again)
  return {
    ...loaded,
    reload: () => void read(),
    more: async () => {
      shown.current.pages++
      await read()
    }
  }
}

function useReader<Value>(
  key: string,
  read: () => Promise<Value>,
  { kinds = [], everyMs }: Again
): Omit<Loaded<Value>, 'reload'> & { read: () => Promise<void> } {
  const [state, setState] = useState<{ key: string; value?: Value; error?: Error }>({ key })
  const ask = useRef(read)
  ask.current = read
  const reader = useRef<Reader | null>(null)
  useEffect(() => {
    const opened = openReader(
      () => ask.current(),
      end =>
        setState(before =>
          'value' in end ? { key, value: end.value } : { ...(before.key === key ? before : { key }), ...end }
        )
    )
    reader.current = opened
    void opened.read()
    return opened.stop
  }, [key])
  const readAgain = async (): Promise<void> => await reader.current?.read()
  useEffect(() => {
    // Many changes at once cause one read, and a slow server gets fewer reads.
    let soon: ReturnType<typeof setTimeout> | undefined
    const listener = (changes: Change[]): void => {
      if (!changes.some(one => one.kind === 'all' || kinds.includes(one.kind))) return
      soon ??= setTimeout(
        () => {
          soon = undefined
          void readAgain()
        },
        Math.min(5_000, Math.max(300, reader.current?.tookMs() ?? 0))
      )
    }
    listeners.add(listener)
    const timer =
      everyMs === undefined
        ? undefined
        : setInterval(() => {
            if (!document.hidden) void readAgain()
          }, everyMs)
    return () => {
      listeners.delete(listener)
      clearTimeout(soon)
      clearInterval(timer)
    }
  }, [key, everyMs])
  return { value: state.value, error: state.error, read: readAgain }
}
