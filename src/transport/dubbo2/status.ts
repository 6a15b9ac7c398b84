import type { Outcome } from '../../task/task.ts'

const failed = (reason: string): Outcome => ({ kind: 'failed', reason })

/** What a status beside 20 means. Its text holds the stack and the arguments, so it is asked and never kept. */
export function errorOf(status: number, text: string): Outcome {
  return { ...meant(status, text), status }
}

function meant(status: number, text: string): Outcome {
  switch (status) {
    case 25:
      return /too large/i.test(text)
        ? { kind: 'refused', reason: 'too_large: larger than the provider takes' }
        : failed('provider: cannot read the call')
    case 31:
      return failed('timeout: the provider gave it up')
    case 40:
    case 60:
      return failed('target_missing: there is no such service, version or group')
    case 70:
      return serviceError(text)
    case 100:
      return failed('provider_busy')
    default:
      return failed(`provider: status ${status}`)
  }
}

const noMethod = /^[\w.]*RpcException: No such method /
/** Nothing but the name of a class, which is one of `types`. */
const noType = /^[\w.]*RpcException: [\w.$]+$/
const unfit =
  /^[\w.]*RpcException: (?:GenericFilter#invoke args\.length|(?:[\w.]+: )?(?:Failed to parse date|Failed to set pojo)|(?:[\w.]+\.)?(?:NumberFormat|ClassCast)Exception)/
const inGenericFilter = /^[\w.]+\.GenericFilter\.invoke\(/

/**
 * Any filter of the provider may end so, for a while. The arguments are at fault, for ever, only where the filter of generic
 * calls itself threw one of these; the same words deeper in a stack, or in a message, mean something else.
 */
function serviceError(text: string): Outcome {
  const first = text.split('\n', 1)[0] ?? ''
  const top = /\n\tat ([^\n]*)/.exec(text)?.[1] ?? ''
  if (!inGenericFilter.test(top)) return failed('provider: service error')
  if (noMethod.test(first)) return failed('target_missing: there is no such method')
  if (noType.test(first)) return failed('target_missing: the provider lacks one of the types')
  if (unfit.test(first)) return { kind: 'refused', reason: 'bad_arguments: they do not fit the method' }
  return failed('provider: service error')
}
