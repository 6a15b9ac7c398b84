import type { DeliveryView, TaskView } from '../db/views.ts'
import type { ZodType } from 'zod'
import { invalid } from './problem.ts'
import { Problem } from '../runtime/errors.ts'
import { readJson, type JsonRead, type JsonShape } from '../json/reader.ts'

export function readBody(body: unknown, shape: JsonShape): JsonRead {
  return readJson(bytesOf(body), shape)
}

/** Bytes of any kind: the client of a queue may return a plain Uint8Array. */
export function bytesOf(body: unknown): Buffer {
  if (body instanceof Uint8Array && body.length > 0)
    return Buffer.isBuffer(body) ? body : Buffer.from(body.buffer, body.byteOffset, body.length)
  throw new Problem('NOT_JSON', 'the body is empty')
}

export function fit<Schema extends ZodType>(
  schema: Schema,
  value: unknown,
  at = ''
): Schema['_zod']['output'] {
  const read = schema.safeParse(value)
  if (!read.success) throw invalid(read.error, at)
  return read.data
}

/** Undefined where no body was sent. */
export function fitOptional<Schema extends ZodType>(
  schema: Schema,
  body: unknown
): Schema['_zod']['output'] | undefined {
  const isEmpty = !Buffer.isBuffer(body) || body.length === 0
  return isEmpty ? undefined : fit(schema, readBody(body, 'plain').value)
}

/** The body and the data of receipts are shown as the texts that were posted: JSON.parse would change 1e400 or 1.0. */
export function taskText({ messageBody, ...task }: TaskView): string {
  const hasData = task.deliveries.some(one => one.receipts?.some(({ data }) => data !== undefined))
  if (!hasData && messageBody === undefined) return JSON.stringify(task)
  const deliveries = hasData ? `[${task.deliveries.map(deliveryText).join()}]` : undefined
  const rest = deliveries === undefined ? task : { ...task, deliveries: undefined }
  return withTexts(rest, { deliveries, messageBody })
}

function deliveryText({ receipts, ...delivery }: DeliveryView): string {
  const texts = receipts?.map(({ data, ...receipt }) => withTexts(receipt, { data }))
  return withTexts(delivery, { receipts: texts && `[${texts.join()}]` })
}

/** The JSON of an object with further members, whose values are JSON already. */
function withTexts(object: object, texts: Record<string, string | undefined>): string {
  let text = JSON.stringify(object).slice(0, -1)
  for (const [name, value] of Object.entries(texts)) if (value !== undefined) text += `,"${name}":${value}`
  return `${text}}`
}

export function tasksText({
  tasks,
  ...next
}: {
  tasks: TaskView[]
  nextCursor?: string
  partial?: true
}): string {
  const more = JSON.stringify(next).slice(1, -1)
  return `{"tasks":[${tasks.map(taskText).join()}]${more && `,${more}`}}`
}
