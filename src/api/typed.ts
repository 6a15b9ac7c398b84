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
 * Parameters and queries are validated and typed by their zod schema. Bodies are not: each route reads its own bytes
 * (read.ts), because only the strict reader knows the text that has to be kept; their schema there is documentation.
 * Answers are not checked either, which would cost more than making them; the tests do that.
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
