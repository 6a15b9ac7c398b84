import { isError, memberOf, textOf } from './text-of.ts'

/** Characters of a stack, and of any other text: a hook may throw an error of megabytes. */
const [mostStack, mostText] = [8_000, 1_000]
const mostMembers = 20
const mostErrors = 5
const deepest = 3

/** An error as the log shows it, made of any thrown value: bounded, and without running into what the value does when it is read. */
export interface LoggedError {
  type: string
  message: string
  stack?: string
  [member: string]: unknown
}

export function loggedError(err: unknown, depth = 0): LoggedError {
  if (!isError(err)) return { type: typeof err, message: textOf(err, mostText) }
  const name = memberOf(err, 'name')
  const errors = memberOf(err, 'errors')
  const causes = causesOf(err)
  const stacks = causes.flatMap(one => {
    const stack = memberOf(one, 'stack')
    return typeof stack === 'string' ? [textOf(stack, mostStack)] : []
  })
  return {
    ...membersOf(err),
    type: typeof name === 'string' ? textOf(name) : 'Error',
    message: textOf(causes.map(one => textOf(one, mostText)).join(': '), mostText),
    ...(stacks.length > 0 ? { stack: textOf(stacks.join('\ncaused by: '), mostStack) } : {}),
    ...(depth < deepest && Array.isArray(errors)
      ? { aggregateErrors: errors.slice(0, mostErrors).map(one => loggedError(one, depth + 1)) }
      : {})
  }
}

/** The error and what caused it. Causes may contain each other. */
function causesOf(err: Error): Error[] {
  const all = [err]
  for (let one: unknown = memberOf(err, 'cause'); isError(one) && all.length < deepest;) {
    all.push(one)
    one = memberOf(one, 'cause')
  }
  return all
}

/** What libraries add, such as the `code` and the `detail` of PostgreSQL: texts, numbers and booleans. */
function membersOf(err: Error): { [member: string]: string | number | boolean } {
  const found: { [member: string]: string | number | boolean } = {}
  try {
    let seen = 0
    for (const name in err) {
      if (++seen > mostMembers) break
      const value = memberOf(err, name)
      if (typeof value === 'string') found[textOf(name)] = textOf(value, mostText)
      else if (typeof value === 'number' || typeof value === 'boolean') found[textOf(name)] = value
    }
  } catch {} // a Proxy whose members cannot be listed
  return found
}

/** For pino: its own serializer reads whatever the value holds. */
export const logSerializers = { err: loggedError } satisfies { err: (err: unknown) => LoggedError }
