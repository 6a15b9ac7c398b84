// The content of an alarm, the same in every channel.
import type { AlarmKind } from '../domain/types.ts'

/** One message for all alarms of one downstream and kind that are sent together. */
export interface AlarmMessage {
  type: 'ackbox.alarm' | 'ackbox.alarm.resolved'
  /** The same when the same message is sent again. */
  id: string
  /** Empty for alarms about no downstream: REJECTED, PREPARED_STUCK. */
  downstream: string
  kind: AlarmKind | 'TEST'
  /** When the first alarm of this incident was raised. */
  since: string
  count: number
  /** The first 100. */
  deliveries: AlarmedDelivery[]
}

export interface AlarmedDelivery {
  taskNo: string
  messageCode: string
  attempt: number
  reason?: string
  createdAt: string
}

const meanings: Record<AlarmMessage['kind'], string> = {
  FAILED: 'The delivery has ended without success. Redeliver the task when the downstream is healthy.',
  NO_HANDLER: 'No running process has a handler for the delivery. It waits until one has.',
  BLOCKED_TARGET: 'The target is not allowed. EGRESS_ALLOW decides which targets are.',
  TLS: 'The certificate of the downstream is not valid.',
  REJECTED: 'A row of the outbox is not a valid task. Correct it, or remove it.',
  DEPENDENCY_FAILED: 'The task waits for another one, which failed.',
  PREPARED_STUCK: 'The producer does not say whether the half message is committed.',
  KEY_HELD:
    'A FAILED delivery holds its orderingKey. Those behind it wait until it is redelivered, settled or released.',
  MISMATCH: 'A reconciliation found differences between Ackbox and the downstream.',
  TEST: 'This is a test. Nothing is wrong.'
}

export const isResolved = ({ type }: AlarmMessage): boolean => type === 'ackbox.alarm.resolved'

/** At most 200 characters. */
export function titleOf(message: AlarmMessage): string {
  const { kind, count, downstream } = message
  const where = downstream === '' ? '' : ` for ${downstream}`
  if (isResolved(message)) return `[RESOLVED] Ackbox: ${kind}${where}`
  if (kind === 'TEST') return '[TEST] Ackbox: a test of this channel'
  return `[ALARM] Ackbox: ${count} × ${kind}${where}`
}

/** Identifies an incident in all its messages. */
export const groupOf = ({ downstream, kind }: AlarmMessage): string => `ackbox/${downstream || '-'}/${kind}`

const linesMost = 10
const lineLength = 200

/**
 * Plain text of at most `bytes` bytes in UTF-8: what happened, the first deliveries, and where to read the rest. What
 * callers wrote (taskNo, reason) loses line breaks and the characters by which chats mention people.
 */
export function textOf(message: AlarmMessage, more: string, bytes: number): string {
  const { deliveries, count } = message
  const end = count > 0 ? [`All open alarms: ${more}`] : []
  if (isResolved(message)) return [titleOf(message), `No alarm of it is open since ${timeNow()}.`].join('\n')
  const head = [titleOf(message), meanings[message.kind]]
  const lines: string[] = []
  for (const { taskNo, messageCode, attempt, reason, createdAt } of deliveries.slice(0, linesMost)) {
    const line = plain(`${taskNo} (${messageCode || '-'}), attempt ${attempt}${reason ? `: ${reason}` : ''}`)
    lines.push(`- ${createdAt.slice(0, 19).replace('T', ' ')} ${line}`)
  }
  for (;;) {
    const left = count - lines.length
    const rest = left > 0 ? [`- and ${left} more`] : []
    const text = [...head, ...lines, ...rest, ...end].join('\n')
    if (Buffer.byteLength(text) <= bytes || lines.length === 0) return text
    lines.pop()
  }
}

const timeNow = (): string => `${new Date().toISOString().slice(0, 19).replace('T', ' ')} UTC`

function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- line breaks and the like would forge lines of the message
  const clean = text.replaceAll(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, ' ').replaceAll(/[<>@]/g, '?')
  return clean.length > lineLength ? `${clean.slice(0, lineLength)}…` : clean
}
