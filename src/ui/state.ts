// What all pages share: who is signed in, where we are, the language, the theme, a clock, and what changes.
import { computed, signal } from '@preact/signals'
import { useEffect, useState } from 'preact/hooks'
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

/** Storage may be refused; then nothing is remembered. */
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
    // Not remembered, then.
  }
}

export const here = signal(new URL(location.href))
/** `/ui/tasks?q=…` goes there without loading the page again. */
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
const asked = here.value.searchParams.get('lang') ?? remembered('language') ?? navigator.language
export const language = signal<Language>(asked.startsWith('zh') ? 'zh' : 'en')
export const texts = computed(() => (language.value === 'zh' ? zh : en))
export function speak(next: Language): void {
  language.value = next
  remember('language', next)
}

export type Theme = 'auto' | 'light' | 'dark'
const askedTheme = here.value.searchParams.get('theme') ?? remembered('theme')
export const theme = signal<Theme>(askedTheme === 'light' || askedTheme === 'dark' ? askedTheme : 'auto')

/** The server's time: the clock of this machine may be wrong. */
const aheadMs = signal(0)
/** `serverMs` is rounded down to a second: less than two of them are no difference. */
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
let watched = ''
let reopening: ReturnType<typeof setTimeout> | undefined
/** And up to as long again, so that many pages do not come back at once. */
const reopenMs = 2_000

/** One stream for the whole page. After a gap all is read again. */
export function listen(taskNo = ''): void {
  if (source && watched === taskNo) return
  deafen()
  watched = taskNo
  open(false)
}
function open(wasOpen: boolean): void {
  const opened = new EventSource(`/events${watched === '' ? '' : `?taskNo=${encodeURIComponent(watched)}`}`)
  source = opened
  opened.addEventListener('open', () => {
    live.value = true
    if (wasOpen) tell([{ kind: 'all' }])
    wasOpen = true
  })
  opened.addEventListener('error', () => {
    live.value = false
    // After any answer but 200 (429, the 502 of a proxy) a browser gives the stream up for good.
    if (opened.readyState !== EventSource.CLOSED || opened !== source) return
    reopening = setTimeout(() => open(true), reopenMs * (1 + Math.random()))
  })
  opened.addEventListener('changed', event =>
    tell(JSON.parse((event as MessageEvent<string>).data) as Change[])
  )
}
export function deafen(): void {
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

/**
 * What `read` gives, again whenever `key` changes, when one of `kinds` changes, and every `everyMs` while somebody looks. The old
 * value is shown until the new one is there.
 */
export function useLoaded<Value>(
  key: string,
  read: () => Promise<Value>,
  { kinds = [], everyMs }: { kinds?: Change['kind'][]; everyMs?: number } = {}
): Loaded<Value> {
  const [state, setState] = useState<{ key: string; value?: Value; error?: Error }>({ key })
  const [turn, setTurn] = useState(0)
  const reload = (): void => setTurn(before => before + 1)
  useEffect(() => {
    let isOver = false
    read().then(
      value => {
        if (!isOver) setState({ key, value })
      },
      (error: unknown) => {
        if (!isOver) setState(before => ({ ...before, key, error: error as Error }))
      }
    )
    return () => {
      isOver = true
    }
  }, [key, turn])
  useEffect(() => {
    // Many changes at once are read once.
    let soon: ReturnType<typeof setTimeout> | undefined
    const listener = (changes: Change[]): void => {
      if (!changes.some(one => one.kind === 'all' || kinds.includes(one.kind))) return
      soon ??= setTimeout(() => {
        soon = undefined
        reload()
      }, 300)
    }
    listeners.add(listener)
    const timer =
      everyMs === undefined
        ? undefined
        : setInterval(() => {
            if (!document.hidden) reload()
          }, everyMs)
    return () => {
      listeners.delete(listener)
      clearTimeout(soon)
      clearInterval(timer)
    }
  }, [key, everyMs])
  return { value: state.value, error: state.error, reload }
}
