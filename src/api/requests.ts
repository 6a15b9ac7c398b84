import { z } from 'zod'
import { receiptResults } from '../domain/types.ts'
import { downstreamForm, messageCodeForm, taskNoForm, uuidForm } from '../domain/ids.ts'
import { durationMs } from '../handler/define.ts'

// The input schemas. They validate the input, type it, and become the OpenAPI. Nothing is coerced.

export const maxBodyBytes = 262_144
export const maxDataBytes = 65_536
export const maxExtend = 1_024
export const yearMs = 366 * 86_400_000

export const taskNo = z
  .string()
  .regex(taskNoForm, 'must be 1 to 128 of A-Z a-z 0-9 . _ : - and start with a letter or digit')
export const messageCode = z
  .string()
  .regex(messageCodeForm, 'must be 1 to 255 of A-Z a-z 0-9 . _ - and start with a letter or digit')
export const downstream = z
  .string()
  .regex(downstreamForm, 'must be 1 to 32 of a-z 0-9 - and start with a letter')
/** `read`: what to do with the text first. */
export const timeText = (read: (text: string) => string) =>
  z
    .string()
    .refine(text => instant(read(text)) !== null, {
      error: ({ input }) =>
        Number.isNaN(msOf(read(input as string)))
          ? 'must be an RFC 3339 time with its zone, like 2026-11-20T10:00:00Z'
          : 'must be in 1970 to 9999'
    })
    .meta({ format: 'date-time' })
export const rfc3339 = timeText(text => text)
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
      'Your own number of the task. The same taskNo is the same task. Default: messageCode:sceneType:md5(messageBody), so equal bodies without taskNo are one task.'
    ),
  messageCode: messageCode.describe('The handler that delivers it.'),
  sceneType: sceneType.optional().describe('A variant of the messageCode, for handlers. Default: empty.'),
  // Any JSON except null, with any members: it is delivered as exactly the posted text.
  messageBody: z
    .unknown()
    .refine(value => value !== null && value !== undefined, 'must be any JSON value except null')
    .meta({
      description: 'Any JSON except null, up to 262,144 bytes. Every attempt sends exactly the posted text.'
    }),
  deliverStartTime: rfc3339
    .optional()
    .describe(
      'Time of the first attempt at the earliest (RFC 3339 with zone, at most a year ahead). Default: now.'
    ),
  delay: z
    .int()
    .min(0)
    .max(yearMs)
    .optional()
    .describe('Milliseconds from now until the first attempt. Instead of deliverStartTime.'),
  deliverBefore: rfc3339
    .optional()
    .describe('No attempt starts after this time. The delivery then ends FAILED with reason EXPIRED.'),
  needCallback: z
    .boolean()
    .optional()
    .describe('Whether receipts are required. Overrides downstreams that declare needCallback.'),
  retryTimes: z.int().min(1).max(100).optional().describe('Maximum number of tries, including the first.'),
  extend: z
    .unknown()
    .refine(isObject, 'must be an object')
    .refine(value => JSON.stringify(value).length <= maxExtend, 'must be at most 1,024 characters of JSON')
    .optional()
    .meta({
      type: 'object',
      additionalProperties: true,
      description: 'Stored and shown with the task, never delivered. At most 1,024 characters.'
    }),
  bizType: bizText(64).optional().describe('Type of the business object, for searches. Requires bizKey.'),
  bizKey: bizText(128).optional().describe('Key of the business object. Requires bizType.'),
  uniqueBiz: z
    .boolean()
    .optional()
    .describe(
      'true: at most one such task of this messageCode may have this bizType and bizKey, regardless of taskNo.'
    ),
  orderingKey: orderingKey
    .optional()
    .describe(
      'Deliveries of one downstream with the same key run one by one, in the order of acceptance. The next starts when the previous one is HANDLED. 1 to 128 characters.'
    ),
  after: z
    .array(taskNo)
    .min(1)
    .max(32)
    .optional()
    .describe(
      'Tasks that must be HANDLED before this one is delivered. They must exist, or come earlier in the same batch.'
    ),
  traceparent: z
    .string()
    .optional()
    .describe(
      'W3C trace context, sent with the deliveries. Overrides the header of that name. Not part of the content. A malformed value is ignored.'
    ),
  prepared: z
    .boolean()
    .optional()
    .describe(
      'true: a half message. It is delivered only after POST /tasks/{taskNo}/commit. Its handler needs a checkBack.'
    ),
  checkBack: z
    .strictObject({
      after: z
        .string()
        .refine(isCheckAfter, 'must be a time from 1s to 24h, like 35s, 5m or 2h')
        .optional()
        .describe(
          'How long to wait before the first check of the producer, and between checks. Default: 35s.'
        )
    })
    .optional()
    .describe('Only with prepared: true.')
})
export type TaskBody = z.output<typeof taskBody>

export const dryRunBody = taskBody.pick({ taskNo: true, sceneType: true, messageBody: true, extend: true })

const batchSize = 1_000
export const batchBody = z.strictObject({ tasks: z.array(taskBody).max(batchSize) })
/** A batch is refused as a whole only for its own shape. Each of its tasks has its own answer. */
export const batchShape = z.strictObject({ tasks: z.array(z.unknown()).max(batchSize) })

export const receiptBody = z.strictObject({
  taskNo,
  messageCode,
  downstream: downstream.optional().describe('If set, it must be the downstream that the token names.'),
  result: z
    .enum(receiptResults)
    .optional()
    .describe(
      'HANDLED (default): done. RETRY: count a try and send again. FAILED: never send again. PROCESSING: wait longer.'
    ),
  reason: z
    .string()
    .optional()
    .describe('Longer ones are cut to 1,000 characters. The whole body has at most 80 KiB.'),
  data: z.unknown().optional().meta({ description: 'Any JSON up to 65,536 bytes, stored with the receipt.' })
})

export const redeliverBody = z
  .strictObject({
    downstream: downstream.optional().describe('Only this downstream. Default: all of the task.'),
    force: z.boolean().optional().describe('Also deliveries that are HANDLED or past deliverBefore.')
  })
  .optional()

const bucket = z.string().regex(/^[0-9a-f]{0,4}$/, 'must be up to 4 hexadecimal digits, in lower case')
const reconcileSize = 10_000
export const reconcileBody = z.strictObject({
  downstream: downstream.describe('The downstream whose tasks are compared.'),
  messageCode: messageCode
    .optional()
    .describe('Only tasks of this messageCode. Default: every messageCode that the key may use.'),
  from: rfc3339.describe('Tasks created at or after this time.'),
  to: rfc3339.describe(
    'Tasks created before this time, at most 31 days after `from`. Leave out the last minutes: deliveries in flight differ.'
  ),
  bucket: bucket
    .optional()
    .describe(
      'With taskNos: only tasks whose MD5 of the taskNo begins with these digits, as in a bucket that differed.'
    ),
  taskNos: z
    .array(taskNo)
    .max(reconcileSize)
    .optional()
    .describe(
      'All tasks of this time and bucket that the downstream has handled. HANDLED tasks of other times are ignored.'
    ),
  digest: z
    .record(bucket, z.strictObject({ count: z.int().min(0), hash: z.string().regex(/^[0-9a-f]{16}$/) }))
    .refine(all => Object.keys(all).length > 0, 'must have one bucket or more')
    .refine(all => Object.keys(all).length <= 256, 'must have at most 256 buckets')
    .refine(
      all => new Set(Object.keys(all).map(key => key.length)).size <= 1,
      'must have buckets of one length'
    )
    .optional()
    .describe(
      'Instead of taskNos. Each bucket is the beginning of the MD5 of taskNos. `count`: number of taskNos. `hash`: XOR of the first 16 hexadecimal digits of their MD5.'
    ),
  cursor: z
    .string()
    .regex(/^[\w.:-]{1,200}$/, 'must be the nextCursor of the previous page')
    .optional()
    .describe('nextCursor of the previous page, with the rest of the body unchanged.'),
  limit: z.int().min(1).max(1_000).optional().describe('Differences per page. Default: 200.')
})

export const taskParams = z.strictObject({ taskNo: z.string().meta({ example: 'order-A-1001' }) })
export const rejectedParams = z.strictObject({
  id: z.string().meta({ example: '0199a1b2-c3d4-7e5f-8a6b-0123456789ab' })
})
export const keyParams = z.strictObject({
  downstream: z.string().meta({ example: 'warehouse' }),
  key: z.string().meta({ example: 'order-42' })
})
export const codeParams = z.strictObject({ messageCode: z.string().meta({ example: 'order.paid' }) })
export const nameParams = z.strictObject({ name: z.string().meta({ example: 'warehouse' }) })

/** Text of another form is no taskNo, so it is not looked up. PostgreSQL's text cannot hold U+0000. */
export const isTaskNo = (text: string): boolean => taskNoForm.test(text)
export const isUuid = (text: string): boolean => uuidForm.test(text)
export const isOrderingKey = (text: string): boolean => orderingKey.safeParse(text).success
export const isDownstream = (text: string): boolean => downstreamForm.test(text)

// RFC 3339: full date, full time with seconds, and a zone.
const form =
  /^(\d{4})-(\d\d)-(\d\d)[Tt](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{1,12}))?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/

/** PostgreSQL and its driver read years of four digits: an offset can move 9999 to 10000. */
const year10000 = Date.UTC(10_000, 0)

/** The time, rounded up to a millisecond so that "not before" stays true. Null if it is not a time in 1970 to 9999, UTC. */
export function instant(text: string): Date | null {
  const ms = msOf(text)
  return ms >= 0 && ms < year10000 ? new Date(ms) : null
}

/** NaN if it is not RFC 3339. */
function msOf(text: string): number {
  const parts = form.exec(text)
  if (!parts) return Number.NaN
  const [, year, month, day, fraction] = parts
  // Date.parse reads February 30th as March 2nd.
  const lastDay = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate()
  if (Number(month) < 1 || Number(month) > 12 || Number(day) < 1 || Number(day) > lastDay) return Number.NaN
  const whole = Date.parse(text.toUpperCase().replace(/\.\d+/, ''))
  return whole + (fraction === undefined ? 0 : Math.ceil(Number(`0.${fraction}`) * 1000))
}
