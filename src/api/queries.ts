import { z } from 'zod'
import { deliveryOf, taskNoForm } from '../domain/ids.ts'
import {
  alarmKinds,
  phases,
  reasons,
  statusNumber,
  taskStatuses,
  type Status,
  type TaskStatus
} from '../domain/types.ts'
import { requireCode, type Caller } from './auth.ts'
import { Problem } from '../runtime/errors.ts'
import { defined } from '../domain/optional-members.ts'
import { bizText, downstream, instant, messageCode, sceneType, taskNo, timeText } from './requests.ts'

// A query contains only text. These schemas convert text to values, and refuse the rest.
export const count = (min: number, max: number) => {
  const range = `must be from ${min} to ${max}`
  return z
    .string()
    .refine(text => /^\d+$/.test(text), 'must be a whole number')
    .transform(Number)
    .pipe(z.int(range).min(min, range).max(max, range))
    .meta({ type: 'integer', minimum: min, maximum: max })
}
export const flag = z.enum(['true', 'false']).transform(text => text === 'true')
/** In a query, a `+` that is not encoded arrives as a space. */
const withPlus = (text: string): string => text.replace(/ (?=\d\d:\d\d$)/, '+')
export const time = timeText(withPlus).transform(text => instant(withPlus(text)) ?? new Date(Number.NaN))
export const fingerprint = z.string().regex(/^[0-9a-f]{16}$/, 'must be 16 hexadecimal digits')

interface Span {
  from?: Date | undefined
  to?: Date | undefined
}
/** False for a span that can contain nothing. */
export const isSpan = ({ from, to }: Span): boolean => from === undefined || to === undefined || from < to
export const spanError = { path: ['to'], error: 'must be after from' }
const statuses = Object.keys(statusNumber) as [Status, ...Status[]]

/** The rows of a page without `limit`. */
export const pageSize = 50

export const page = {
  messageCode: messageCode.optional(),
  downstream: downstream.optional(),
  from: time.optional().describe('Created at or after. Default: the last 24 hours.'),
  to: time.optional().describe('Created before.'),
  cursor: z
    .string()
    .regex(/^[\w.~:-]{1,300}$/, 'must be the nextCursor of the previous page')
    .optional()
    .describe('nextCursor of the previous page.'),
  limit: count(1, 200).optional().describe('Default: 50.')
}
export const waitQuery = z.strictObject({
  wait: z
    .enum(['HANDLED'])
    .optional()
    .describe('Hold the answer until the task has ended, in whatever state.'),
  timeout: count(1, 60).optional().describe('Maximum seconds to hold it, only with wait. Default: 30.')
})
/** The filters that tasks and deliveries share. */
export const narrowing = {
  sceneType: sceneType.optional(),
  bizType: bizText(64).optional(),
  bizKey: bizText(128).optional().describe('Only with bizType.'),
  createdBy: bizText(128).optional().describe('Name of the key that posted it.'),
  taskNoPrefix: z
    .string()
    .regex(taskNoForm, 'must be the beginning of a taskNo')
    .optional()
    .describe('The beginning of its taskNo.'),
  reason: z.enum(reasons).optional().describe('Why a delivery ended.'),
  lastReason: bizText(200).optional().describe('Text contained in the last reason, in upper or lower case.')
}
export const taskQuery = z
  .strictObject({
    status: z
      .enum(taskStatuses)
      .optional()
      .describe('FAILED, SENDING and PREPARED, without from: of all times.'),
    needCallback: flag.optional(),
    checked: flag
      .optional()
      .describe('Only with status=PREPARED or CANCELLED. true: its producer was asked at least once.'),
    webhookId: z
      .string()
      .refine(text => deliveryOf(text) !== null, 'must be a webhook-id, as a downstream got it')
      .optional()
      .describe('The `webhook-id` of one of its deliveries. Without `from`, all tasks are searched.'),
    ...narrowing,
    bizType: narrowing.bizType.describe('With bizKey and without `from`, all tasks are searched.'),
    ...page
  })
  .refine(isSpan, spanError)
export const deliveryQuery = z
  .strictObject({
    status: z.enum(statuses).optional().describe('FAILED and SENDING, without from: of all times.'),
    phase: z.enum(phases).optional().describe('Without from: of all times.'),
    fingerprint: fingerprint
      .optional()
      .describe('Their last failure belongs to this group of GET /failures.'),
    ...narrowing,
    ...page
  })
  .refine(isSpan, spanError)
const { messageCode: ofCode, cursor, limit } = page
export const rejectedQuery = z.strictObject({ messageCode: ofCode, cursor, limit })
export const keyQuery = z.strictObject({
  held: flag.optional().describe('true: only keys held by a FAILED delivery.'),
  downstream: downstream.optional(),
  cursor: z
    .string()
    .regex(/^[\w.-]{1,800}$/, 'must be the nextCursor of the previous page')
    .optional()
    .describe('nextCursor of the previous page.'),
  limit
})
export const alarmQuery = z
  .strictObject({
    kind: z.enum(alarmKinds).optional(),
    notKind: z.enum(alarmKinds).optional().describe('All kinds but this one.'),
    open: flag.optional().describe('true: not resolved yet. Without from: of all times.'),
    taskNo: taskNo.optional().describe('Of this task. Without from: of all times.'),
    ...page,
    from: time.optional().describe('Raised at or after. Default: the last 24 hours.'),
    to: time.optional().describe('Raised before.')
  })
  .refine(isSpan, spanError)

interface PageQuery {
  messageCode?: string | undefined
  downstream?: string | undefined
  from?: Date | undefined
  to?: Date | undefined
  cursor?: string | undefined
  limit?: number | undefined
}

const dayMs = 86_400_000

/** A list of these needs no `from`: they wait for something or somebody, whatever their age, and have indexes of their own. */
export const isUnsettled = (status: TaskStatus | undefined): boolean =>
  status === 'FAILED' || status === 'SENDING' || status === 'PREPARED'

/**
 * The filter of all lists: only rows that this key may see, by default 50 rows. Without `from` they are those of the last 24 hours,
 * or of all times.
 */
export function listFilterOf(
  { messageCode, downstream, from, to, cursor, limit }: PageQuery,
  caller: Caller,
  now: Date,
  isOfAllTimes: boolean
) {
  requireCode(caller, messageCode, '?/messageCode')
  return {
    messageCodes: caller.messageCodes,
    from: from ?? new Date(isOfAllTimes ? 0 : (to ?? now).getTime() - dayMs),
    limit: limit ?? pageSize,
    ...defined({ messageCode, downstream, to, cursor })
  }
}

type Narrowing = { [name in keyof typeof narrowing]?: z.output<(typeof narrowing)[name]> }

/** The filters that tasks and deliveries have in common. */
export function narrowed(query: Narrowing) {
  const { sceneType, bizType, bizKey, createdBy, taskNoPrefix, reason, lastReason } = query
  if (bizKey !== undefined && bizType === undefined)
    throw new Problem('INVALID', 'set bizType too', { pointer: '?/bizKey' })
  return {
    ...defined({ sceneType, bizType, bizKey, createdBy, taskNoPrefix, reason, lastReason })
  }
}

export const badCursor = () =>
  new Problem('INVALID', 'must be the nextCursor of the previous page', { pointer: '?/cursor' })

/** The page of a list. Throws if the cursor is invalid. */
export function pageOf<Page>(found: Page | 'bad_cursor'): Page {
  if (found === 'bad_cursor') throw badCursor()
  return found
}
