// The state of all pages: the session, the address, the language, the theme and a clock.
import { computed, signal } from '@preact/signals'
import { focusNextHeading } from './focus.ts'
import { keyOf, type Session } from './session.ts'
import { en } from './texts/en.ts'
import { zh } from './texts/zh.ts'

export const session = signal<Session>({ signedIn: false, auth: true, version: '' })
/** The session is being ended. No page reads meanwhile: it would be refused. */
export const isLeaving = signal(false)
/** Whose session it is, also after its end. */
export const currentKey = computed(() => keyOf(session.value))
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
  focusNextHeading()
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
