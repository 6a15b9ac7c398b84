// What a page reads from the API, read again when it changes.
import { useEffect, useRef, useState } from 'preact/hooks'
import { onChanges, type LiveChange } from './live.ts'
import { openReader, readPages, type AskPage, type Listed, type Reader } from './reader.ts'
import { isLeaving, session } from './state.ts'

export interface Loaded<Value> {
  value: Value | undefined
  error: Error | undefined
  /** Resolves after the end of a read that begins now or later. */
  reload: () => Promise<void>
}
interface Again<Value> {
  kinds?: LiveChange['kind'][]
  everyMs?: number
  /** `everyMs` applies only to values for which this is true. Default: to all. */
  while?: (value: Value) => boolean
}

export interface LoadedList<Row> extends Loaded<Listed<Row>> {
  key: string
  /** Reads one more page. */
  more: () => Promise<void>
}

/** `useLoaded` for a list, in pages of `size` rows. All shown pages are read again. */
export function useList<Row>(
  key: string,
  ask: AskPage<Row>,
  { size = 50, ...again }: Again<Listed<Row>> & { size?: number } = {}
): LoadedList<Row> {
  const shown = useRef({ key, pages: pagesOf(key) })
  if (shown.current.key !== key) shown.current = { key, pages: pagesOf(key) }
  const loaded = useLoaded(key, () => readPages(ask, shown.current.pages, size), again)
  return {
    ...loaded,
    key,
    more: async () => {
      shown.current.pages++
      keepPages(shown.current)
      await loaded.reload()
    }
  }
}

/** The history of the browser keeps how many pages of a list are shown, for the way back from a row. */
interface Kept {
  pages?: Record<string, number>
}
const kept = (): Kept => (history.state as Kept | null) ?? {}
const pagesOf = (key: string): number => kept().pages?.[key] ?? 1
const keepPages = ({ key, pages }: { key: string; pages: number }): void =>
  history.replaceState({ pages: { ...kept().pages, [key]: pages } }, '')

/**
 * The result of `read`. It is read again when `key` changes, after a change of one of `kinds`, and every `everyMs` while the page is
 * visible. The old value is shown until the new value arrives.
 */
export function useLoaded<Value>(
  key: string,
  read: () => Promise<Value>,
  { kinds = [], ...again }: Again<Value> = {}
): Loaded<Value> {
  const [state, setState] = useState<{ key: string; value?: Value; error?: Error }>({ key })
  const isOver = state.value !== undefined && again.while?.(state.value) === false
  const everyMs = isOver ? undefined : again.everyMs
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
  const reload = async (): Promise<void> => await reader.current?.read()
  useEffect(() => {
    // Many changes at once cause one read, and a slow server gets fewer reads.
    let soon: ReturnType<typeof setTimeout> | undefined
    const listener = (changes: LiveChange[]): void => {
      if (!changes.some(one => one.kind === 'all' || kinds.includes(one.kind))) return
      soon ??= setTimeout(
        () => {
          soon = undefined
          void reload()
        },
        Math.min(5_000, Math.max(300, reader.current?.tookMs() ?? 0))
      )
    }
    const stop = onChanges(listener)
    return () => {
      stop()
      clearTimeout(soon)
    }
  }, [key])
  // Apart from the listener, as its end must not drop a change that was just heard.
  useEffect(() => {
    if (everyMs === undefined) return
    const timer = setInterval(() => {
      if (!document.hidden && session.value.signedIn && !isLeaving.value) void reload()
    }, everyMs)
    return () => clearInterval(timer)
  }, [key, everyMs])
  return { value: state.value, error: state.error, reload }
}
