import { useLayoutEffect } from 'preact/hooks'
import { nextRow } from './focus.ts'
import { go, session } from './state.ts'

export const places: Record<string, string> = {
  o: 'overview',
  d: 'downstreams',
  t: 'tasks',
  f: 'failures',
  h: 'held',
  a: 'alarms',
  n: 'nodes',
  k: 'keys',
  u: 'audit'
}

/** `g t` opens the tasks, `/` focuses the search, j and k move between the rows, `r` presses the button that redelivers. */
export function useKeyboard(toggleHelp: () => void): void {
  // Before the page is painted: whoever sees the menu may press a key.
  useLayoutEffect(() => {
    let isGoing = false
    const pressed = (event: KeyboardEvent): void => {
      const { target, key } = event
      if (event.metaKey || event.ctrlKey || event.altKey || !session.value.signedIn) return
      const field = target instanceof Element && target.closest('input, textarea, select, dialog')
      if (field) {
        if (key === 'Escape' && target instanceof HTMLInputElement) target.blur()
        return
      }
      if (isGoing) {
        isGoing = false
        const place = places[key]
        // A page that the key may not open is not in the menu.
        if (document.querySelector(`nav a[href='/ui/${place}']`)) go(`/ui/${place}`)
        return
      }
      if (key === 'g') isGoing = true
      else if (key === '?') toggleHelp()
      else if (key === '/') {
        event.preventDefault()
        document.querySelector<HTMLInputElement>('input[type=search]')?.focus()
      } else if (key === 'j' || key === 'k' || key === 'ArrowDown' || key === 'ArrowUp') {
        const rows = [...document.querySelectorAll<HTMLElement>('tr.row, li.row')]
        if (rows.length === 0) return
        if (key.length > 1 && !rows.some(row => row === document.activeElement)) return
        event.preventDefault()
        nextRow(rows, key === 'j' || key === 'ArrowDown' ? 1 : -1)?.focus()
      } else if (key === 'r') document.querySelector<HTMLElement>('[data-key=r]')?.click()
    }
    document.addEventListener('keydown', pressed)
    return () => document.removeEventListener('keydown', pressed)
  }, [])
}
