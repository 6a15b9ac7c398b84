import { z } from 'zod'
import { receiptResults } from '../domain/types.ts'
import { messageCodeForm } from '../domain/ids.ts'
import { durationMs } from '../handler/define.ts'

// The input schemas. They validate the input, type it, and become the OpenAPI. Nothing is coerced.

export const maxBodyBytes = 262_144
export const maxDataBytes = 65_536
export const maxExtend = 1_024
const yearMs = 366 * 86_400_000

export const taskNoForm = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/
export const taskNo = z
  .string()
  .regex(taskNoForm, 'must be 1 to 128 of A-Z a-z 0-9 . _ : - and start with a letter or digit')
export const messageCode = z
  .string()
  .regex(messageCodeForm, 'must be 1 to 255 of A-Z a-z 0-9 . _ - and start with a letter or digit')
const downstreamForm = /^[a-z][a-z0-9-]{0,31}$/
export const downstream = z
  .string()
  .regex(downstreamForm, 'must be 1 to 32 of a-z 0-9 - and start with a letter')
export const rfc3339 = z
  .string()
  .refine(text => instant(text) !== null, 'must be an RFC 3339 time with its zone, like 2026-11-20T10:00:00Z')
  .meta({ format: 'date-time' })
const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value)

/** Any text but control characters, which no index, no header and no query should hold. */
const plainText = (least: number, most: number) =>
  z
    .string()
    .regex(
      new RegExp(`^[^\\u0000-\\u001f\\u007f-\\u009f]{${least},${most}}$`, 'u'),
      `must be ${least === 0 ? 'up' : least} to ${most} characters, none of them a control character`
    )
export const bizText = (most: number) => plainText(1, most)
export const sceneType = plainText(0, 255)

const orderingKey = bizText(128)

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
  orderingKey: orderingKey
    .optional()
    .describe(
      'Deliveries of one downstream with the same key run one after the other, in the order in which they were accepted: the next starts when the one before is HANDLED. 1 to 128 characters.'
    ),
  after: z
    .array(taskNo)
    .min(1)
    .max(32)
    .optional()
    .describe(
      'Tasks that exist already, in a batch also earlier ones of it: nothing is delivered before each of them is HANDLED.'
    ),
  traceparent: z
    .string()
    .optional()
    .describe(
      'W3C trace context of this task, sent along with its deliveries; overrides the header of that name. No part of the content. One that is malformed is ignored.'
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

const bucket = z.string().regex(/^[0-9a-f]{0,4}$/, 'must be up to 4 hexadecimal digits, in lower case')
export const reconcileSize = 10_000
export const reconcileBody = z.strictObject({
  downstream: downstream.describe('Whose tasks are compared.'),
  messageCode: messageCode
    .optional()
    .describe('Only its tasks. Default: of every messageCode that the key may use.'),
  from: rfc3339.describe('Tasks that were created at or after this time.'),
  to: rfc3339.describe(
    'And before this time, at most 31 days later. Leave out the last minutes: what is on its way differs.'
  ),
  bucket: bucket
    .optional()
    .describe(
      'With taskNos: only tasks whose MD5 of the taskNo begins with these digits, as in a digest that differed.'
    ),
  taskNos: z
    .array(taskNo)
    .max(reconcileSize)
    .optional()
    .describe(
      'Every task of the time (and bucket) that the downstream has handled. Others, of before or after, do no harm.'
    ),
  digest: z
    .record(bucket, z.strictObject({ count: z.int().min(0), hash: z.string().regex(/^[0-9a-f]{16}$/) }))
    .refine(all => Object.keys(all).length <= 256, 'must have at most 256 buckets')
    .refine(all => new Set(Object.keys(all).map(key => key.length)).size === 1, 'needs buckets of one length')
    .optional()
    .describe(
      'Instead of taskNos: of each bucket, which is the beginning of the MD5 of a taskNo, how many there are, and the exclusive or of the first 16 hexadecimal digits of their MD5.'
    ),
  cursor: z
    .string()
    .regex(/^[\w.:-]{1,200}$/, 'must be the nextCursor of the page before')
    .optional()
    .describe('nextCursor of the page before; the rest of the body as it was.'),
  limit: z.int().min(1).max(1_000).optional().describe('Differences on a page. Default 200.')
})

export const taskParams = z.strictObject({ taskNo: z.string().meta({ example: 'order-A-1001' }) })
export const rejectedParams = z.strictObject({
  id: z.string().meta({ example: '0199a1b2-c3d4-7e5f-8a6b-0123456789ab' })
})
export const keyParams = z.strictObject({
  downstream: z.string().meta({ example: 'warehouse' }),
  key: z.string().meta({ example: 'order-42' })
})
export const nameParams = z.strictObject({ name: z.string().meta({ example: 'warehouse' }) })

/** Text of another form names nothing: it is not looked up. PostgreSQL's text cannot hold U+0000. */
export const isTaskNo = (text: string): boolean => taskNoForm.test(text)
export const isUuid = (text: string): boolean => /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/.test(text)
export const isOrderingKey = (text: string): boolean => orderingKey.safeParse(text).success
export const isDownstream = (text: string): boolean => downstreamForm.test(text)

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
