import { z } from 'zod'
import {
  alarmKinds,
  phases,
  reasons,
  receiptResults,
  statusNumber,
  taskStatuses,
  type Status
} from '../domain/types.ts'
import { durationMs } from '../handler/define.ts'

// The input schemas. They validate the input, type it, and become the OpenAPI. Nothing is coerced.

export const maxBodyBytes = 262_144
export const maxDataBytes = 65_536
export const maxExtend = 1_024
const yearMs = 366 * 86_400_000

const taskNoForm = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/
const taskNo = z
  .string()
  .regex(taskNoForm, 'must be 1 to 128 of A-Z a-z 0-9 . _ : - and start with a letter or digit')
const name = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/
const messageCode = z
  .string()
  .regex(name, 'must be 1 to 64 of A-Z a-z 0-9 . _ - and start with a letter or digit')
const sceneType = z
  .string()
  .regex(/^(?:[A-Za-z0-9][A-Za-z0-9._-]{0,63})?$/, 'must be empty, or up to 64 of A-Z a-z 0-9 . _ -')
const downstreamForm = /^[a-z][a-z0-9-]{0,31}$/
const downstream = z.string().regex(downstreamForm, 'must be 1 to 32 of a-z 0-9 - and start with a letter')
const rfc3339 = z
  .string()
  .refine(text => instant(text) !== null, 'must be an RFC 3339 time with its zone, like 2026-11-20T10:00:00Z')
  .meta({ format: 'date-time' })
const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Any text but control characters, which no index and no query should hold. */
const bizText = (most: number) =>
  z
    .string()
    .regex(
      new RegExp(`^[^\\u0000-\\u001f\\u007f-\\u009f]{1,${most}}$`, 'u'),
      `must be 1 to ${most} characters, none of them a control character`
    )

function isCheckAfter(text: string): boolean {
  const ms = durationMs(text)
  return ms !== undefined && ms >= 1_000 && ms <= 86_400_000
}

export const taskBody = z.strictObject({
  taskNo: taskNo
    .optional()
    .describe(
      'Your own number of the task; the same one again is the same task. Default: messageCode:sceneType:md5(messageBody), so equal bodies without taskNo are one task.'
    ),
  messageCode: messageCode.describe('Which handler takes it.'),
  sceneType: sceneType
    .optional()
    .describe('A variant of the messageCode; handlers may look at it. Default empty.'),
  // The rest of the world calls unknown members of a body fine: whatever JSON but null, delivered as the very text posted.
  messageBody: z
    .unknown()
    .refine(value => value !== null && value !== undefined, 'must be any JSON value but null')
    .meta({
      description:
        'Any JSON but null, up to 262,144 bytes; delivered with the very text that was posted, on every attempt.'
    }),
  deliverStartTime: rfc3339
    .optional()
    .describe('Not before this time (RFC 3339 with zone, at most a year ahead). Default: now.'),
  delay: z
    .int()
    .min(0)
    .max(yearMs)
    .optional()
    .describe('Not before this many milliseconds from now; the other form of deliverStartTime.'),
  deliverBefore: rfc3339
    .optional()
    .describe('No attempt after this time; then the delivery ends FAILED, EXPIRED.'),
  needCallback: z
    .boolean()
    .optional()
    .describe('Whether receipts are owed; overrides those downstreams that declare needCallback themselves.'),
  retryTimes: z.int().min(1).max(100).optional().describe('Limit of tries, the first included.'),
  extend: z
    .unknown()
    .refine(isObject, 'must be an object')
    .refine(value => JSON.stringify(value).length <= maxExtend, 'must be at most 1,024 characters of JSON')
    .optional()
    .meta({
      type: 'object',
      additionalProperties: true,
      description: 'Kept and shown with the task, never delivered. At most 1,024 characters.'
    }),
  bizType: bizText(64)
    .optional()
    .describe('What kind of business thing it is about, to search for it later. Only with bizKey.'),
  bizKey: bizText(128).optional().describe('Which one of that kind. Only with bizType.'),
  uniqueBiz: z
    .boolean()
    .optional()
    .describe(
      'Of one messageCode at most one task that says true may have this bizType and bizKey, whatever their taskNo.'
    ),
  after: z
    .array(taskNo)
    .min(1)
    .max(32)
    .optional()
    .describe(
      'Tasks that exist already, in a batch also earlier ones of it: nothing is delivered before each of them is HANDLED.'
    ),
  prepared: z
    .boolean()
    .optional()
    .describe(
      'true: a half message. Nothing is delivered before POST /tasks/{taskNo}/commit; its handler needs a checkBack.'
    ),
  checkBack: z
    .strictObject({
      after: z
        .string()
        .refine(isCheckAfter, `must be a time from 1s to 24h, like 35s, 5m or 2h`)
        .optional()
        .describe(
          'How long to wait before the producer is asked what became of it, and between the next times. Default 35s.'
        )
    })
    .optional()
    .describe('Of one that is prepared only.')
})
export type TaskBody = z.output<typeof taskBody>

export const batchSize = 1_000
export const batchBody = z.strictObject({ tasks: z.array(taskBody).max(batchSize) })
/** A batch is refused as a whole only for its own shape. Each of its tasks has its own answer. */
export const batchShape = z.strictObject({ tasks: z.array(z.unknown()).max(batchSize) })

export const receiptBody = z.strictObject({
  taskNo,
  messageCode,
  downstream: downstream
    .optional()
    .describe('Whose receipt this is, if you want it checked; the token names it anyway.'),
  result: z
    .enum(receiptResults)
    .optional()
    .describe(
      'Default HANDLED. RETRY: counts a try and comes again. FAILED: never again. PROCESSING: wait longer.'
    ),
  reason: z.string().max(1_000).optional(),
  data: z.unknown().optional().meta({ description: 'Any JSON up to 65,536 bytes; kept with the receipt.' })
})

export const redeliverBody = z
  .strictObject({
    downstream: downstream.optional().describe('Only this one. Default: all of the task.'),
    force: z.boolean().optional().describe('Also what is HANDLED already, and past deliverBefore.')
  })
  .optional()

export const taskParams = z.strictObject({ taskNo: z.string().meta({ example: 'order-A-1001' }) })
export const rejectedParams = z.strictObject({
  id: z.string().meta({ example: '0199a1b2-c3d4-7e5f-8a6b-0123456789ab' })
})
export const nameParams = z.strictObject({ name: z.string().meta({ example: 'warehouse' }) })

/** Text of another form names nothing: it is not looked up. PostgreSQL's text cannot hold U+0000. */
export const isTaskNo = (text: string): boolean => taskNoForm.test(text)
export const isUuid = (text: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)
export const isDownstream = (text: string): boolean => downstreamForm.test(text)

// A query has only text. These convert text to values, and refuse the rest.
const count = (min: number, max: number) =>
  z
    .string()
    .refine(text => /^\d{1,6}$/.test(text), 'must be a whole number')
    .transform(Number)
    .pipe(z.int().min(min).max(max))
    .meta({ type: 'integer', minimum: min, maximum: max })
const flag = z.enum(['true', 'false']).transform(text => text === 'true')
const time = rfc3339.transform(text => instant(text) ?? new Date(Number.NaN))
const statuses = Object.keys(statusNumber) as [Status, ...Status[]]

const page = {
  messageCode: messageCode.optional(),
  downstream: downstream.optional(),
  from: time.optional().describe('Created at or after. Default: the last 24 hours.'),
  to: time.optional().describe('Created before.'),
  cursor: z
    .string()
    .regex(/^[\w.~:-]{1,300}$/, 'must be the nextCursor of the page before')
    .optional()
    .describe('nextCursor of the page before.'),
  limit: count(1, 200).optional().describe('Default 50.')
}
export const waitQuery = z.strictObject({
  wait: z
    .enum(['HANDLED'])
    .optional()
    .describe('Hold the answer until the task is in a terminal state, whichever.'),
  timeout: count(1, 60).optional().describe('Seconds to hold it at most. Default 30.')
})
export const taskQuery = z.strictObject({
  status: z.enum(taskStatuses).optional(),
  sceneType: sceneType.optional(),
  needCallback: flag.optional(),
  bizType: bizText(64).optional().describe('With bizKey and without from: of all times.'),
  bizKey: bizText(128).optional().describe('Only with bizType.'),
  ...page
})
export const deliveryQuery = z.strictObject({
  status: z.enum(statuses).optional(),
  phase: z.enum(phases).optional(),
  reason: z.enum(reasons).optional(),
  ...page
})
const { messageCode: ofCode, cursor, limit } = page
export const rejectedQuery = z.strictObject({ messageCode: ofCode, cursor, limit })
export const alarmQuery = z.strictObject({
  kind: z.enum(alarmKinds).optional(),
  open: flag.optional().describe('true: not resolved yet.'),
  ...page
})

// RFC 3339: full date, full time with seconds, and a zone.
const form =
  /^(\d{4})-(\d\d)-(\d\d)[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{1,12}))?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/

/** The time, rounded up to a millisecond so that "not before" stays true. Null if it is not a time after 1970. */
export function instant(text: string): Date | null {
  const parts = form.exec(text)
  if (!parts) return null
  const [, year, month, day, fraction] = parts
  // Date.parse takes February 30th for March 2nd.
  const lastDay = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate()
  if (Number(month) < 1 || Number(month) > 12 || Number(day) < 1 || Number(day) > lastDay) return null
  const whole = Date.parse(text.toUpperCase().replace(/\.\d+/, ''))
  const ms = whole + (fraction === undefined ? 0 : Math.ceil(Number(`0.${fraction}`) * 1000))
  return ms >= 0 ? new Date(ms) : null
}
