import type { LoadedHandler } from '../handler/loaded.ts'
import type { Invalid } from '../runtime/errors.ts'
import type { Logger } from '../runtime/logger.ts'
import { messageOf } from './hooks.ts'

/** `detail` and `pointer` are those of the first error. */
export interface InvalidBody {
  kind: 'invalid'
  detail: string
  pointer: string
  errors: readonly Invalid[]
}

/** The body as the handler's schema makes it, or all that is wrong with it. */
export function bySchema(
  deps: { log: Logger },
  handler: LoadedHandler,
  request: { taskNo: string; messageCode: string; body: unknown }
): { data: unknown } | InvalidBody {
  const body = parse(deps, handler, request)
  if ('threw' in body) return { kind: 'invalid', detail: body.threw, pointer: '/messageBody', errors: [] }
  if (body.success) return { data: body.data }
  const errors = body.error.issues.map(({ message, path }) => ({
    detail: message,
    pointer: ['', 'messageBody', ...path.map(escapePointer)].join('/')
  }))
  const [first = { detail: 'does not fit the schema of its handler', pointer: '/messageBody' }] = errors
  return { kind: 'invalid', ...first, errors }
}

/** A schema that throws (for example a transform that parses any text as JSON) refuses the body. */
function parse(
  { log }: { log: Logger },
  { body }: LoadedHandler,
  { taskNo, messageCode, body: value }: { taskNo: string; messageCode: string; body: unknown }
) {
  try {
    return body.safeParse(value)
  } catch (err) {
    log.warn({ err, taskNo, messageCode }, 'schema.failed')
    return { threw: `the schema of its handler threw: ${messageOf(err)}` }
  }
}

/** RFC 6901, section 3. */
const escapePointer = (part: PropertyKey): string => String(part).replaceAll('~', '~0').replaceAll('/', '~1')
