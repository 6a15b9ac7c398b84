import { isCollision, isTimeout } from '../db/batch.ts'
import { isInfrastructure, UnconfirmedCommit } from '../db/pool.ts'
import type { TaskView } from '../db/views.ts'
import type { AcceptResult } from '../delivery/accept.ts'
import type { HandlerRefusal } from '../delivery/handler-refusal.ts'
import type { FastifyReply } from 'fastify'
import type { $ZodError } from 'zod/v4/core'
import type { ApiLog } from './deps.ts'
import {
  HandlerElsewhere,
  beginning,
  namedErrors,
  pointerOf,
  Problem,
  problemBody,
  problems,
  Unavailable,
  withoutAngles,
  type Invalid,
  type ProblemBody,
  type ProblemCode
} from '../runtime/errors.ts'
import { JsonProblem } from '../json/reader.ts'
import { nearest } from '../runtime/nearest.ts'
import { inChinese, wantsChinese } from './chinese-problems.ts'
import { isError } from '../runtime/text-of.ts'

/** Turns every error of a request into a problem. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error
  if (error instanceof JsonProblem) return new Problem(error.code, error.detail, pointed(error.pointer))
  if (error instanceof Unavailable) {
    return new Problem('UNAVAILABLE', error.message, {
      headers: {
        'retry-after': String(Math.max(1, Math.ceil(error.retryAfterS))),
        ...(error instanceof HandlerElsewhere && { connection: 'close' })
      }
    })
  }
  if (isTimeout(error)) return problemOf(new Unavailable('the database takes too long'))
  if (isCollision(error))
    return problemOf(new Unavailable('another call changes the same rows: send it again'))
  if (error instanceof UnconfirmedCommit)
    return problemOf(new Unavailable('no standby has confirmed the commit: send it again'))
  if (isInfrastructure(error)) return problemOf(new Unavailable())
  const { code, statusCode } = isError(error)
    ? (error as Error & { code?: unknown; statusCode?: unknown })
    : {}
  const known = typeof code === 'string' ? fastifyCodes[code] : undefined
  if (known) return new Problem(known)
  // Other errors below 500 come from the framework, for a broken or malformed request.
  if (typeof statusCode === 'number' && statusCode >= 400 && statusCode < 500)
    return new Problem('BAD_REQUEST')
  return new Problem('INTERNAL')
}

const fastifyCodes: Record<string, ProblemCode> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'TOO_LARGE',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'UNSUPPORTED_MEDIA_TYPE',
  FST_ERR_MAX_PARAM_LENGTH: 'NOT_FOUND',
  FST_ERR_NOT_FOUND: 'NOT_FOUND'
}

export function bodyOf(problem: Problem): ProblemBody {
  return problemBody(problem.code, problem.message, problem.pointer, problem.errors)
}

export function sendProblem(reply: FastifyReply, error: unknown, log: ApiLog, asText = false): FastifyReply {
  const problem = problemOf(error)
  const body = bodyOf(problem)
  if (body.code === 'INTERNAL') {
    log.error(
      { err: error, method: reply.request.method, route: reply.request.routeOptions.url },
      'api.failed'
    )
  }
  void reply.code(body.status).headers(problem.headers ?? {})
  if (asText) return reply.type('text/plain; charset=utf-8').send('fail')
  if (body.status === 401) void reply.header('www-authenticate', 'Bearer')
  const chinese = wantsChinese(reply.request.headers['accept-language'])
  return reply
    .headers({ 'content-language': chinese ? 'zh-CN' : 'en', vary: 'accept-language' })
    .type('application/problem+json')
    .send(JSON.stringify(chinese ? inChinese(body) : body))
}

/** The errors that an answer names, each with its place. zod names the place by path, and unknown members by their keys. */
export function invalid(error: $ZodError, at = ''): Problem {
  const errors = error.issues
    .slice(0, namedErrors)
    .flatMap(issue =>
      issue.code === 'unrecognized_keys'
        ? issue.keys.slice(0, namedErrors).map(key => unrecognized(issue.path, key, at))
        : [{ detail: withoutAngles(issue.message), pointer: at + pointerOf(issue.path) }]
    )
    .slice(0, namedErrors)
  const [first] = errors
  return first ? new Problem('INVALID', first.detail, { ...first, errors }) : new Problem('INVALID')
}

/** In the words of zod, but with this name only: the message of zod repeats all names, for each of them. */
const unrecognized = (path: readonly PropertyKey[], key: string, at: string): Invalid => ({
  detail: `Unrecognized key: "${beginning(key)}"`,
  pointer: at + pointerOf([...path, key])
})

const pointed = (pointer: string | undefined) => (pointer === undefined ? {} : { pointer })

/** The same problem as bytes on a socket, for requests that Node itself refuses: in English, since their headers were not read. */
export function rawProblem(code: ProblemCode, headers: Record<string, string> = {}, detail = ''): string {
  const body = JSON.stringify(problemBody(code, detail))
  const lines = Object.entries({
    ...headers,
    connection: 'close',
    'content-type': 'application/problem+json',
    'content-language': 'en',
    'x-content-type-options': 'nosniff',
    'content-length': String(Buffer.byteLength(body))
  }).map(([name, value]) => `${name}: ${value}\r\n`)
  return `HTTP/1.1 ${problems[code][0]} ${phrases[problems[code][0]] ?? 'Error'}\r\n${lines.join('')}\r\n${body}`
}

const phrases: Record<number, string> = {
  400: 'Bad Request',
  404: 'Not Found',
  405: 'Method Not Allowed',
  408: 'Request Timeout',
  414: 'URI Too Long',
  417: 'Expectation Failed',
  431: 'Request Header Fields Too Large'
}

/** The task, or the refusal. `codes`: the codes the caller may have meant. `at` points to its place in a batch. */
export function acceptedTask(
  accepted: AcceptResult,
  messageCode: string,
  codes: readonly string[],
  at = ''
): TaskView {
  if ('task' in accepted) return accepted.task
  throw refusalProblem(accepted, messageCode, codes, at)
}

export function refusalProblem(
  refusal: Exclude<AcceptResult, { kind: 'created' | 'same' }>,
  messageCode: string,
  codes: readonly string[],
  at: string
): Problem {
  switch (refusal.kind) {
    case 'conflict':
      return new Problem('TASK_CONFLICT', 'with other content', { pointer: `${at}/taskNo` })
    case 'biz_conflict':
      return new Problem('BIZ_CONFLICT', refusal.by, { pointer: `${at}/bizKey` })
    case 'unknown_code':
      return unknownCode(messageCode, codes, `${at}/messageCode`)
    case 'no_check_back':
      // The title is enough.
      return new Problem('NO_CHECK_BACK', '', placed(refusal, at))
    case 'invalid':
      return new Problem('INVALID', refusal.detail, placed(refusal, at))
  }
}

const placed = ({ pointer, errors }: HandlerRefusal, at: string) => ({
  pointer: at + pointer,
  errors: errors.map(one => ({ detail: one.detail, pointer: at + one.pointer }))
})

/** One answer for several problems, with the code of the first. */
export function together(problems: readonly Problem[]): Problem {
  const [first = new Problem('INVALID')] = problems
  if (problems.length === 1) return first
  return new Problem(first.code, first.message, {
    ...pointed(first.pointer),
    errors: problems.flatMap(one => (one.errors.length > 0 ? one.errors : [errorOf(one)]))
  })
}

const errorOf = ({ code, message, pointer = '' }: Problem): Invalid => ({
  detail: code === 'INVALID' ? message : [problems[code][1], message].filter(Boolean).join(': '),
  pointer
})

export const unknownCode = (messageCode: string, codes: readonly string[], pointer: string): Problem =>
  new Problem('UNKNOWN_CODE', withSuggestion(messageCode, codes), { pointer })

export const unknownDownstream = (name: string, names: readonly string[], pointer: string): Problem =>
  new Problem('DOWNSTREAM_NOT_FOUND', withSuggestion(name, names), { pointer })

function withSuggestion(name: string, known: readonly string[]): string {
  const meant = nearest(name, known)
  if (meant !== undefined) return `${name}. Did you mean ${meant}?`
  if (known.length === 0) return name
  const more = known.length - mostNamed
  return `${name}. Known: ${known.slice(0, mostNamed).join(', ')}${more > 0 ? ` and ${more} more` : ''}`
}

/** Names of messageCodes or downstreams in one answer. */
const mostNamed = 5
