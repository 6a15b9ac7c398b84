// The log on a terminal: one short line for each event. Elsewhere the log is JSON, and this file is not loaded.
import { styleText } from 'node:util'
import type { EndedDelivery } from './logger.ts'
import { textOf } from './text-of.ts'

/** More lines than this a second cannot be read; warnings and errors are always shown. */
const linesPerSecond = 20
const longest = 160
const longestStack = 10_000

type Style = Parameters<typeof styleText>[0]
type Event = Record<string, unknown>
type Shown = [word: string, style: Style, text: string]

const levels: Record<number, [word: string, style: Style]> = {
  10: ['TRACE', 'gray'],
  20: ['DEBUG', 'gray'],
  30: ['INFO', 'cyan'],
  40: ['WARN', 'yellow'],
  50: ['ERROR', 'red'],
  60: ['FATAL', 'red']
}
const words: Record<string, [word: string, style: Style]> = {
  handled: ['HANDLED', 'green'],
  receive: ['HANDLED', 'green'],
  sent: ['SENT', 'gray'],
  retry: ['RETRY', 'yellow'],
  release: ['RELEASED', 'gray'],
  fail: ['FAILED', 'red'],
  skip: ['SKIPPED', 'gray']
}

interface Terminal {
  /** A line of JSON, as pino writes it. */
  write(json: string): void
  ended(delivery: EndedDelivery): void
}

/** `print` gets whole lines. `colors` off: plain text. */
export function openTerminal(print: (text: string) => void, colors: boolean): Terminal {
  let shown = 0
  let hidden = 0
  let timer: NodeJS.Timeout | undefined

  const closeSecond = (): void => {
    if (hidden > 0) print(`${' '.repeat(9)}… and ${hidden} more\n`)
    shown = 0
    hidden = 0
    timer = undefined
  }
  /** Is there room for another line in this second? Lines without room are only counted. */
  const hasRoom = (): boolean => {
    timer ??= setTimeout(closeSecond, 1_000).unref()
    if (shown < linesPerSecond) shown++
    else hidden++
    return hidden === 0
  }
  const show = ([word, style, text]: Shown): void => {
    const time = new Date().toTimeString().slice(0, 8)
    const padded = word.padEnd(8)
    print(`${time} ${colors ? styleText(style, padded) : padded} ${text}\n`)
  }
  process.once('exit', closeSecond)
  return {
    write(json) {
      const event = JSON.parse(json) as Event
      if (Number(event['level']) >= 40 || hasRoom()) show(eventLine(event))
    },
    ended(delivery) {
      if (!hasRoom()) return
      const { status, ...rest } = delivery
      show([status, status === 'HANDLED' ? 'green' : 'red', deliveryText(rest)])
    }
  }
}

function eventLine(event: Event): Shown {
  const { level, time: _, msg, err, ...fields } = event
  const known = msg === 'attempt.done' ? words[textOf(fields['move'])] : undefined
  if (known) return [...known, deliveryText(fields)]
  const [word, style] = levels[Number(level)] ?? ['INFO', 'cyan']
  const { stack, message, ...other } = (err ?? {}) as Event
  const pairs = Object.entries({ ...fields, ...(stack === undefined ? {} : other) }).map(
    ([name, value]) => `${name}=${short(value)}`
  )
  const text = [short(msg), ...pairs, ...(message === undefined ? [] : [short(message)])].join(' ')
  // A stack keeps its line breaks: it helps to fix the bug.
  return [word, style, Number(level) >= 50 && stack !== undefined ? `${text}\n${lines(stack)}` : text]
}

function deliveryText(fields: Event): string {
  const { taskNo, downstream, attempt, ms, by, afterMs, reason } = fields
  const text = [
    `${short(taskNo)} → ${short(downstream)}, attempt ${short(attempt)}`,
    ...(ms === undefined ? [] : [`${short(ms)} ms`]),
    ...(by === undefined ? [] : [`by ${short(by)}`]),
    ...(afterMs === undefined ? [] : [`again in ${Math.round(Number(afterMs) / 1_000)} s`])
  ].join(', ')
  return reason === undefined ? text : `${text}: ${short(reason)}`
}

/** One line of bounded length. Producers choose a taskNo, and it must not move the cursor or write colors. */
function short(value: unknown): string {
  const text =
    typeof value === 'string' ? value : Array.isArray(value) ? value.join(',') : (JSON.stringify(value) ?? '')
  const cut = text.length > longest ? `${text.slice(0, longest)}…` : text
  return escaped(cut.replaceAll('\n', ' '))
}

const lines = (stack: unknown): string => textOf(stack, longestStack).split('\n').map(escaped).join('\n')

// oxlint-disable-next-line no-control-regex -- it replaces them
const escaped = (text: string): string => text.replaceAll(/[\u0000-\u001F\u007F-\u009F\u2028-\u202E]/g, '�')
