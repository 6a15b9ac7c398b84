// Where the keyboard and the screen reader go on after a navigation, a dialog or a longer list.
import type { RefObject } from 'preact'
import { useEffect, useRef } from 'preact/hooks'

let isNavigated = false
/** The heading of the next page gets the focus. At the first load of the document it gets none. */
export const focusNextHeading = (): void => {
  isNavigated = true
}

export function useHeadingFocus(): RefObject<HTMLHeadingElement | null> {
  const ref = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    if (isNavigated) ref.current?.focus({ preventScroll: true })
    isNavigated = false
  }, [])
  return ref
}

/** Whether the element with the focus was removed. */
export const isFocusLost = (): boolean =>
  document.activeElement === null || document.activeElement === document.body

/** After the end of a dialog whose button is gone. */
export function focusHeadingIfLost(): void {
  if (isFocusLost()) document.querySelector<HTMLElement>('main h1')?.focus({ preventScroll: true })
}

/** The row after or before the element with the focus, which may be a row, inside of one, or between lists. */
export function nextRow(rows: readonly HTMLElement[], step: 1 | -1): HTMLElement | undefined {
  const { activeElement } = document
  const at = rows.findIndex(row => row === activeElement)
  const below = rows.findIndex(
    row => ((activeElement?.compareDocumentPosition(row) ?? 0) & Node.DOCUMENT_POSITION_FOLLOWING) !== 0
  )
  const after = at >= 0 ? at + 1 : below < 0 ? rows.length : below
  const before = at >= 0 ? at - 1 : after - 1
  return rows[Math.min(rows.length - 1, Math.max(0, step === 1 ? after : before))]
}
