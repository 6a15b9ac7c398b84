import type { ZodType } from 'zod'
import { invalid } from './problem.ts'
import { Problem } from '../errors.ts'
import { readJson, type JsonRead, type JsonShape } from '../task/text.ts'

export function readBody(body: unknown, shape: JsonShape): JsonRead {
  return readJson(bytesOf(body), shape)
}

export function bytesOf(body: unknown): Buffer {
  if (Buffer.isBuffer(body) && body.length > 0) return body
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
