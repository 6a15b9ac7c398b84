import type {
  FastifyBaseLogger,
  FastifyInstance,
  FastifySchemaCompiler,
  FastifyTypeProvider,
  RawReplyDefaultExpression,
  RawRequestDefaultExpression,
  RawServerDefault
} from 'fastify'
import type { output, ZodType } from 'zod'
import { invalid } from './problem.ts'

/**
 * zod schemas validate and type parameters and queries. Bodies are not validated here: each route reads its own bytes
 * (json/reader.ts), because only the strict reader keeps the posted text. Their schema is documentation.
 * Answers are not checked either: that would cost more than building them. The tests check them.
 */
export interface Typed extends FastifyTypeProvider {
  validator: this['schema'] extends ZodType ? output<this['schema']> : unknown
  serializer: unknown
}

export type App = FastifyInstance<
  RawServerDefault,
  RawRequestDefaultExpression,
  RawReplyDefaultExpression,
  FastifyBaseLogger,
  Typed
>

export const validatorCompiler: FastifySchemaCompiler<ZodType> =
  ({ schema, httpPart }) =>
  data => {
    if (httpPart === 'body') return { value: data }
    const read = schema.safeParse(data)
    return read.success
      ? { value: read.data }
      : { error: invalid(read.error, httpPart === 'params' ? '' : '?') }
  }

export const serializerCompiler =
  () =>
  (data: unknown): string =>
    JSON.stringify(data)
