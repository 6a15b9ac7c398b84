// All errors that a caller can get: code -> status, title. Codes are part of the API and never change.

import { redact } from '../domain/redact.ts'
import { codeOf, isError, textOf } from './text-of.ts'

export const problems = {
  NOT_JSON: [400, 'The body is not JSON'],
  NOT_UTF8: [400, 'The body is not UTF-8'],
  NOT_I_JSON: [400, 'The body is not I-JSON (RFC 7493)'],
  TOO_DEEP: [400, 'The body is nested too deeply'],
  TOO_MANY_MEMBERS: [400, 'The body has too many members'],
  BAD_REQUEST: [400, 'Malformed HTTP request'],
  UNAUTHORIZED: [401, 'A valid API key is required'],
  BAD_TOKEN: [401, 'The callback token is not valid for this delivery'],
  FORBIDDEN: [403, 'This API key lacks the required scope'],
  CODE_FORBIDDEN: [403, 'This API key is not allowed to use this messageCode'],
  CSRF: [403, 'The CSRF token of the session is missing or wrong'],
  CROSS_ORIGIN: [403, 'Requests from another origin are not allowed'],
  NOT_FOUND: [404, 'Path not found'],
  TASK_NOT_FOUND: [404, 'Task not found'],
  OPERATION_NOT_FOUND: [404, 'Operation not found'],
  REJECTED_NOT_FOUND: [404, 'Rejected row not found'],
  DOWNSTREAM_NOT_FOUND: [404, 'Downstream not found'],
  KEY_NOT_FOUND: [404, 'Ordering key not found'],
  FAILURE_NOT_FOUND: [404, 'No failure with this fingerprint'],
  ALARM_NOT_FOUND: [404, 'Alarm not found'],
  API_KEY_NOT_FOUND: [404, 'API key not found'],
  METHOD_NOT_ALLOWED: [405, 'Method not allowed'],
  TIMEOUT: [408, 'The request did not arrive in time'],
  TASK_CONFLICT: [409, 'A task with this taskNo exists, with other content'],
  BIZ_CONFLICT: [409, 'A task of this messageCode exists for this bizType and bizKey'],
  NOTHING_TO_STOP: [409, 'No delivery of this task can be stopped'],
  NOTHING_TO_REDELIVER: [409, 'No delivery of this task can be redelivered'],
  KEY_NOT_HELD: [409, 'No failed delivery holds this ordering key'],
  NOTHING_TO_PUSH: [409, 'No delivery of this task waits for its next try'],
  NOTHING_TO_SETTLE: [409, 'No delivery of this task is open or FAILED'],
  TASK_NOT_STARTED: [409, 'This task waits for its start time'],
  TASK_BLOCKED: [409, 'This task waits for other tasks'],
  OPERATION_RUNNING: [409, 'A running operation redelivers these deliveries already'],
  OPERATION_ENDED: [409, 'This operation has ended'],
  API_KEY_NAME_TAKEN: [409, 'This is the name of an API key that your key did not create'],
  TOO_MANY_API_KEYS: [409, 'Your key has created too many API keys'],
  TASK_PREPARED: [409, 'This task is prepared: commit it, or roll it back'],
  TASK_COMMITTED: [409, 'This task was committed'],
  TASK_ROLLED_BACK: [409, 'This task was rolled back'],
  NOT_PREPARED: [409, 'This task was not posted as prepared'],
  NO_REQUEST: [409, 'The handler makes no request for this delivery'],
  TASK_EXPIRED: [409, 'The deliverBefore of this task has passed'],
  PREREQUISITE_DELETED: [409, 'A task that this one waited for was deleted'],
  TASK_DELETED: [409, 'This delivery was deleted'],
  TOO_LARGE: [413, 'The request is too large'],
  BODY_TOO_LARGE: [413, 'messageBody is too large'],
  DATA_TOO_LARGE: [413, 'data is too large'],
  URI_TOO_LONG: [414, 'The request target is too long'],
  UNSUPPORTED_MEDIA_TYPE: [415, 'The body must be application/json in UTF-8, not compressed'],
  EXPECTATION_FAILED: [417, 'Only Expect: 100-continue is supported'],
  MISDIRECTED: [421, 'This Host is not served'],
  INVALID: [422, 'The request does not match the schema'],
  UNKNOWN_CODE: [422, 'No handler for this messageCode'],
  NO_CHECK_BACK: [422, 'The handler of this messageCode accepts no prepared tasks: it has no checkBack'],
  WRONG_CODE: [422, 'The task has another messageCode'],
  WRONG_DOWNSTREAM: [422, 'The token belongs to another downstream'],
  TOO_MANY_REQUESTS: [429, 'Too many requests'],
  TOO_MANY_WAITERS: [429, 'Too many requests are waiting for tasks'],
  OVERLOADED: [429, 'The service is overloaded'],
  HEADERS_TOO_LARGE: [431, 'The headers are too large'],
  INTERNAL: [500, 'Internal error: a bug in Ackbox'],
  UNAVAILABLE: [503, 'The service cannot process this request now: repeat it']
} as const satisfies Record<string, readonly [status: number, title: string]>

export type ProblemCode = keyof typeof problems

/** RFC 9457, with our stable `code` and, if one member is wrong, a JSON pointer to it. */
export interface ProblemBody {
  type: string
  title: string
  status: number
  code: ProblemCode
  detail?: string
  pointer?: string
  /** All errors, if there are several. */
  errors?: Invalid[]
}

/** One error of a request, with a JSON pointer to its place. */
export interface Invalid {
  detail: string
  pointer: string
}

/** Faults of the setup that an operator can fix, one on each line: a package is not installed, a broker is not set. */
export class SetupError extends Error {
  override name = 'SetupError'
}

/** Is this the error of `import()` for a package that is not installed? */
export const isMissingPackage = (err: unknown): boolean => codeOf(err) === 'ERR_MODULE_NOT_FOUND'

/** The text of a thrown value: JavaScript may throw any value. */
export const messageOf = (err: unknown): string => textOf(err, 10_000)

/** The same, short enough for a reason: the text of a server or a handler may have any length. */
export const reasonOf = (err: unknown): string => textOf(err, 200)

/** The error behind the others. One of drizzle tells which query failed, and only its cause tells why. */
export const rootOf = (err: unknown, depth = 0): unknown =>
  isError(err) && err.cause !== undefined && depth < 10 ? rootOf(err.cause, depth + 1) : err

/** The first `most` UTF-16 units, or one less: half a surrogate pair at the end is refused by jsonb and by strict readers of JSON. */
export const cutText = (text: string, most: number): string =>
  text.slice(0, most).replace(/[\uD800-\uDBFF]$/, '')

/** The most characters of a text that an answer shows, and the most that are read for it. */
const [mostShown, mostRead] = [200, 1_000]

/** The part of a caller's text that can be shown. It is one character too long if it is cut, which `printable` has to know. */
export const beginning = (text: string): string => text.slice(0, mostRead + 1)

/** The JSON pointer of a path (RFC 6901, section 3), with only the beginning of long names. */
export const pointerOf = (path: readonly PropertyKey[]): string =>
  path.map(part => '/' + beginning(String(part)).replaceAll('~', '~0').replaceAll('/', '~1')).join('')

/** A refusal that the caller can fix. `headers` are sent with it (Retry-After, Allow). */
export class Problem extends Error {
  readonly code: ProblemCode
  readonly pointer: string | undefined
  readonly headers: Record<string, string> | undefined
  readonly errors: readonly Invalid[]

  constructor(
    code: ProblemCode,
    detail = '',
    more: { pointer?: string; headers?: Record<string, string>; errors?: readonly Invalid[] } = {}
  ) {
    super(detail)
    this.name = 'Problem'
    this.code = code
    this.pointer = more.pointer
    this.headers = more.headers
    this.errors = more.errors ?? []
  }
}

/** The details that callers may see. The list is closed because the text of a connection error names hosts. */
type UnavailableDetail =
  | 'the database cannot be reached'
  | 'the database takes too long'
  | 'another call changes the same rows: send it again'
  | 'no standby has confirmed the commit: send it again'
  | 'the task was removed while it was accepted: post it again'
  | 'this delivery changes too often: send the receipt again'
  | 'another process has the handler of this messageCode: send it again'
  | 'the process is overloaded'
  | 'the process is stopping'

/** Nothing was promised to the caller. The API answers 503 with the message as its detail, and with `Retry-After`. */
export class Unavailable extends Error {
  readonly retryAfterS: number

  constructor(
    message: UnavailableDetail = 'the database cannot be reached',
    retryAfterS = 1,
    options?: ErrorOptions
  ) {
    super(message, options)
    this.name = 'Unavailable'
    this.retryAfterS = retryAfterS
  }
}

/** Only another process can answer. The connection is closed, so that the repeated call may reach that one. */
export class HandlerElsewhere extends Unavailable {
  constructor() {
    super('another process has the handler of this messageCode: send it again')
  }
}

/** The most errors in one answer. */
export const namedErrors = 20

export function problemBody(
  code: ProblemCode,
  detail?: string,
  pointer?: string,
  errors: readonly Invalid[] = []
): ProblemBody {
  const [status, title] = problems[code]
  return {
    type: `urn:ackbox:problem:${code}`,
    title,
    status,
    code,
    ...(detail ? { detail: printable(detail) } : {}),
    ...(pointer === undefined ? {} : { pointer: printable(pointer) }),
    ...(errors.length < 2 ? {} : { errors: errors.slice(0, namedErrors).map(shown) })
  }
}

const shown = ({ detail, pointer }: Invalid): Invalid => ({
  detail: printable(detail),
  pointer: printable(pointer)
})

/** A secret that the first cut divides may be too short to be known by its shape: percent-encoded in UTF-16 it has 124 characters. */
const longestRest = 128

/**
 * Text of a caller is returned escaped and cut, so that an error page cannot carry a payload. It is cut before it is searched,
 * because a name in a body may have megabytes.
 */
function printable(text: string): string {
  const isCut = text.length > mostRead
  const known = redact(text.slice(0, mostRead))
  const safe = (isCut ? known.slice(0, -longestRest) : known).replace(
    // oxlint-disable-next-line eslint/no-control-regex -- control characters are replaced here
    /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2028\u2029\u2066-\u2069\ud800-\udfff<>]/gu,
    char => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`
  )
  return isCut || safe.length > mostShown ? `${cutText(safe, mostShown - 3)}...` : safe
}

/** The beginning of a message of zod without `<` and `>`, which the answer would escape as possible markup. */
export const withoutAngles = (message: string): string =>
  beginning(message)
    .replaceAll('<=', '≤ ')
    .replaceAll('>=', '≥ ')
    .replaceAll(' to be <', ' to be less than ')
    .replaceAll(' to be >', ' to be more than ')

/** For a URL that begins well and cannot be read. The text does not repeat the URL: it may hold a password. */
export const unreadableUrl = (example: string): string =>
  `cannot be read as a URL: a right one is like ${example}; the port is a number up to 65535, and in a password @ is %40, / is %2F, # is %23 and ? is %3F`
