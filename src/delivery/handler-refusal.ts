import type { LoadedHandler } from '../handler/loaded.ts'
import { namedErrors, pointerOf, withoutAngles, type Invalid, reasonOf } from '../runtime/errors.ts'
import type { Logger } from '../runtime/logger.ts'
import { textOf } from '../runtime/text-of.ts'

/** Why a handler refuses a task. `kind`, `detail` and `pointer` are those of the first error. */
export interface HandlerRefusal extends Invalid {
  kind: 'invalid' | 'no_check_back'
  errors: readonly Invalid[]
}

/** The part of a task that a handler checks. Without `body` only the rest is checked. */
interface ForHandler {
  taskNo?: string | undefined
  messageCode: string
  prepared?: unknown
  needCallback?: boolean | null | undefined
  body?: unknown
}

interface SchemaDeps {
  log: Pick<Logger, 'warn'>
}

/** A downstream that sends receipts declares needCallback, with `true` or `false`. */
const takesReceipts = ({ downstreams }: LoadedHandler): boolean =>
  downstreams.some(one => one.needCallback !== undefined)

/** Such a task would wait for a receipt for ever. */
const noReceipts = {
  detail: 'No downstream of this handler accepts receipts. Set needCallback in the handler.',
  pointer: '/needCallback'
}
const noCheckBack = { detail: 'its handler has no checkBack', pointer: '/prepared' }

/** The body as parsed by the handler's schema, or all reasons of the handler's refusal. */
export function checkedByHandler(
  deps: SchemaDeps,
  handler: LoadedHandler,
  task: ForHandler
): { data: unknown } | HandlerRefusal {
  const errors: Invalid[] = []
  const isHalf = Boolean(task.prepared)
  if (isHalf && !handler.checkBack) errors.push(noCheckBack)
  if (task.needCallback && !takesReceipts(handler)) errors.push(noReceipts)
  const body = 'body' in task ? parse(deps, handler, task) : { data: undefined }
  if ('refused' in body) errors.push(...body.refused)
  else if (errors.length === 0) return body
  const [first = misfit] = errors
  return { kind: first === noCheckBack ? 'no_check_back' : 'invalid', ...first, errors }
}

const misfit = { detail: 'does not match the schema of its handler', pointer: '/messageBody' }

type Issue = { message: string; path: PropertyKey[] }

/** zod's schemas may refuse without an issue. */
function schemaErrors({ issues }: { issues: readonly Issue[] }): Invalid[] {
  if (issues.length === 0) return [misfit]
  return issues.slice(0, namedErrors).map(({ message, path }) => ({
    detail: withoutAngles(textOf(message, 1_000)),
    pointer: pointerOf(['messageBody', ...path])
  }))
}

/** The refusal of the task by its handler. Undefined if the handler accepts it. */
export type RefusalBy = (task: ForHandler) => HandlerRefusal | { kind: 'unknown_code' } | undefined

export const refusalBy =
  (handlers: ReadonlyMap<string, LoadedHandler>, log: SchemaDeps['log']): RefusalBy =>
  task => {
    const handler = handlers.get(task.messageCode)
    if (!handler) return { kind: 'unknown_code' }
    const checked = checkedByHandler({ log }, handler, task)
    return 'kind' in checked ? checked : undefined
  }

/** A schema that throws (for example a transform that parses any text as JSON) refuses the body. Its issues may hold anything. */
function parse(
  { log }: SchemaDeps,
  { body }: LoadedHandler,
  { taskNo, messageCode, body: value }: ForHandler
): { data: unknown } | { refused: Invalid[] } {
  try {
    const read = body.safeParse(value)
    return read.success ? { data: read.data } : { refused: schemaErrors(read.error) }
  } catch (err) {
    log.warn({ err, taskNo, messageCode }, 'schema.failed')
    const detail = `the schema of its handler threw: ${reasonOf(err)}`
    return { refused: [{ detail, pointer: '/messageBody' }] }
  }
}
