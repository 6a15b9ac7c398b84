// Small components that all pages use.
import type { ComponentChildren } from 'preact'
import { duration } from '../domain/waiting-for.ts'
import { ApiRefusal } from './api.ts'
import { useHeadingFocus } from './focus.ts'
import type { Loaded } from './loaded.ts'
import { go, language, now, param, texts } from './state.ts'

/** A link that does not reload the page. */
export function Link({
  to,
  children,
  ...more
}: {
  to: string
  children: ComponentChildren
  class?: string
  'aria-current'?: 'page' | undefined
  title?: string
}) {
  return (
    <a
      {...more}
      href={to}
      onClick={event => {
        if (event.metaKey || event.ctrlKey || event.shiftKey || event.button !== 0) return
        event.preventDefault()
        go(to)
      }}
    >
      {children}
    </a>
  )
}

export const taskPath = (taskNo: string): string => `/ui/task?no=${encodeURIComponent(taskNo)}`

export function Status({ of }: { of: string }) {
  return <span class={`status ${of.toLowerCase()}`}>{texts.value.status[of] ?? of}</span>
}

const two = (n: number): string => String(n).padStart(2, '0')
/** `10:02:11` for today, otherwise `11-23 10:02:11`. In the user's time zone. */
export function clock(at: string): string {
  const day = new Date(at)
  const time = `${two(day.getHours())}:${two(day.getMinutes())}:${two(day.getSeconds())}`
  return day.toDateString() === now.value.toDateString()
    ? time
    : `${two(day.getMonth() + 1)}-${two(day.getDate())} ${time}`
}

/** A time, with its age. */
export function Time({ at, ago = true }: { at: string | undefined; ago?: boolean }) {
  if (at === undefined) return <span class="quiet">–</span>
  const ms = now.value.getTime() - Date.parse(at)
  return (
    <time dateTime={at} title={at}>
      {clock(at)}
      {ago && ms > -1_000 ? <span class="quiet"> ({texts.value.common.ago(short(ms))})</span> : null}
    </time>
  )
}
/** The larger part of a duration: `3 min`, not `3 min 20 s`. */
const short = (ms: number): string => duration(ms, language.value).split(' ').slice(0, 2).join(' ')

export const number = (n: number): string => n.toLocaleString('en')
export const ms = (value: number | undefined): string =>
  value === undefined
    ? '–'
    : value < 1_000
      ? `${value < 10 ? Math.round(value * 10) / 10 : Math.round(value)} ms`
      : duration(value, language.value)

/** The loaded value, or the error. */
export function Shown<Value>({
  loaded,
  children
}: {
  loaded: Loaded<Value>
  children: (value: Value) => ComponentChildren
}) {
  const { value, error } = loaded
  return (
    <>
      {error ? <Failed error={error} /> : null}
      {value === undefined ? (
        error ? null : (
          <p class="quiet" role="status">
            {texts.value.common.loading}
          </p>
        )
      ) : (
        children(value)
      )}
    </>
  )
}

export function Failed({ error }: { error: Error }) {
  const isMissing = error instanceof ApiRefusal && error.code === 'NOT_FOUND'
  return (
    <p class="failed" role="alert">
      {isMissing ? texts.value.common.missing : error.message}
    </p>
  )
}

export interface Column<Row> {
  name: string
  cell: (row: Row) => ComponentChildren
  /** Aligns the column right, for numbers. */
  right?: boolean
  /** The heading of the card on a phone, shown without the column's name. */
  head?: boolean
}

/** A list. The keys j and k move between its rows, Enter opens a row. On a phone each row is a card. */
export function Table<Row>({
  label,
  rows,
  columns,
  keyOf,
  open,
  act
}: {
  label: string
  rows: readonly Row[]
  columns: readonly Column<Row>[]
  keyOf: (row: Row) => string
  open?: (row: Row) => void
  /** The action of the key `r` on a row. */
  act?: (row: Row) => void
}) {
  if (rows.length === 0) return <p class="quiet empty">{texts.value.common.none}</p>
  return (
    <div class="scroll">
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map(({ name, right }) => (
              <th key={name} scope="col" class={right ? 'right' : ''}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(row => (
            <tr
              key={keyOf(row)}
              class={open || act ? 'row' : ''}
              {...(open || act ? { tabIndex: 0 } : {})}
              onClick={event => {
                if (open && !(event.target as Element).closest('a, button, input, label, summary')) open(row)
              }}
              onKeyDown={event => {
                if (event.target !== event.currentTarget) return
                if (event.key === 'Enter') open?.(row)
                if (event.key === 'r' && act) {
                  event.preventDefault()
                  event.stopPropagation()
                  act(row)
                }
              }}
            >
              {columns.map(({ name, cell, right, head }) => (
                <td key={name} data-name={name} class={`${right ? 'right' : ''} ${head ? 'head' : ''}`}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  )
}

/** Removed lines and added lines. */
export function Difference({ lines }: { lines: readonly string[] }) {
  return (
    <pre tabIndex={0}>
      {lines.map((line, at) => (
        <span key={at} class={line.startsWith('+') ? 'plus' : 'minus'}>
          {`${line}\n`}
        </span>
      ))}
    </pre>
  )
}

export function Heading({ title, children }: { title: string; children?: ComponentChildren }) {
  const ref = useHeadingFocus()
  return (
    <div class="heading">
      <h1 ref={ref} tabIndex={-1}>
        {title}
      </h1>
      <div class="acts">{children}</div>
    </div>
  )
}

/** A text field of one line, or of `rows` lines. */
export function Field({
  name,
  value,
  set,
  rows,
  required = false
}: {
  name: string
  value: string
  set: (value: string) => void
  rows?: number
  required?: boolean
}) {
  const change = (event: { currentTarget: { value: string } }): void => set(event.currentTarget.value)
  return (
    <label class="field">
      {name}
      {rows === undefined ? (
        <input required={required} value={value} onInput={change} />
      ) : (
        <textarea rows={rows} spellcheck={false} value={value} onInput={change} />
      )}
    </label>
  )
}

/** The time spans that a page can show, in seconds. */
export const spans = { '1h': 3_600, '6h': 21_600, '1d': 86_400, '7d': 604_800, '30d': 2_592_000 }
export type Span = keyof typeof spans

/** The time span in the address of the page. */
export function spanOr(otherwise: Span): Span {
  const name = param('span')
  return name in spans ? (name as Span) : otherwise
}

export const spanNames = Object.keys(spans) as Span[]

export function SpanChoice<Value extends Span | 'all'>({
  values,
  value,
  choose
}: {
  values: readonly Value[]
  value: Value
  choose: (value: Value) => void
}) {
  return (
    <Choice
      label={texts.value.failures.span}
      values={values}
      value={value}
      choose={choose}
      nameOf={one => texts.value.overview.span[one] ?? one}
    />
  )
}

export function Choice<Value extends string>({
  label,
  values,
  value,
  choose,
  nameOf = one => one
}: {
  label: string
  values: readonly Value[]
  value: Value
  choose: (value: Value) => void
  nameOf?: (value: Value) => string
}) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {values.map(one => (
        <button key={one} type="button" aria-pressed={one === value} onClick={() => choose(one)}>
          {nameOf(one)}
        </button>
      ))}
    </div>
  )
}

/** A row of a list of names and values, `<dl class="pairs">`. */
export function Pair({ name, value }: { name: string; value: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  )
}
