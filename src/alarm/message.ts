// The content of an alarm, the same in every channel of one language.
import type { Language } from './channel-config.ts'
import { texts } from './texts.ts'
import { inertText } from './inert-text.ts'
import type { AlarmedDelivery, AlarmMessage } from './types.ts'

export const isResolved = ({ type }: AlarmMessage): boolean => type === 'ackbox.alarm.resolved'

/** At most 200 characters. */
export function titleOf(message: AlarmMessage, language: Language): string {
  const { kind, count, downstream } = message
  const { resolvedTitle, testTitle, raisedTitle } = texts[language]
  if (isResolved(message)) return resolvedTitle(kind, downstream)
  return kind === 'TEST' ? testTitle : raisedTitle(kind, downstream, count)
}

/** Identifies an incident in all its messages. */
export const groupOf = ({ downstream, kind }: AlarmMessage): string => `ackbox/${downstream || '-'}/${kind}`

const linesMost = 10

/** A delivery for people: its texts of producers and downstreams are inert. The messageCode is a handler's, but in a rejected row anybody's. */
export const inert = (
  { taskNo, messageCode, reason, ...rest }: AlarmedDelivery,
  kind: AlarmMessage['kind']
): AlarmedDelivery => ({
  ...rest,
  taskNo: inertText(taskNo, 128),
  messageCode: kind === 'REJECTED' ? inertText(messageCode, 128) : messageCode,
  ...(reason === undefined ? {} : { reason: inertText(reason, 200) })
})

/** Plain text of at most `bytes` bytes in UTF-8: the event, the first deliveries, and a link to the rest. */
export function textOf(message: AlarmMessage, language: Language, more: string, bytes: number): string {
  const { deliveries, count, kind } = message
  const words = texts[language]
  const title = titleOf(message, language)
  if (isResolved(message)) return `${title}\n${words.resolvedSince(timeNow())}`
  const head = [title, words.meanings[kind]]
  const end = count > 0 ? [words.openAlarms(more)] : []
  const lines: string[] = []
  for (const delivery of deliveries.slice(0, linesMost)) {
    const at = delivery.createdAt.slice(0, 19).replace('T', ' ')
    lines.push(`- ${at} ${words.delivery(inert(delivery, kind))}`)
  }
  for (;;) {
    const left = count - lines.length
    const rest = left > 0 ? [`- ${words.more(left)}`] : []
    const text = [...head, ...lines, ...rest, ...end].join('\n')
    if (Buffer.byteLength(text) <= bytes || lines.length === 0) return text
    lines.pop()
  }
}

const timeNow = (): string => `${new Date().toISOString().slice(0, 19).replace('T', ' ')} UTC`
