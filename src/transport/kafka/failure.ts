import type { Outcome } from '../../domain/types.ts'
import { failureOf } from '../failure.ts'
import { Failure } from '../egress/guard.ts'

/** What a client's error came to. Errors nest, by `cause` and by `errors`: the innermost that we know decides. */
export function failed(error: unknown): Extract<Outcome, { kind: 'failed' | 'refused' }> {
  const all = [...tree(error)]
  const judged = all.find(each => each instanceof Failure)
  if (judged) return judged.outcome
  const ids = new Set(all.map(each => text(each, 'apiId')))
  if (ids.has('MESSAGE_TOO_LARGE') || ids.has('RECORD_LIST_TOO_LARGE'))
    return { kind: 'refused', reason: 'too_large: larger than the topic accepts' }
  if (ids.has('INVALID_TOPIC_EXCEPTION')) return fail('bad_request: invalid topic name')
  if (
    ids.has('UNKNOWN_TOPIC_OR_PARTITION') ||
    ids.has('UNKNOWN_TOPIC_ID') ||
    all.some(each => each.message.startsWith('Unknown topic '))
  )
    return fail('target_missing: the topic does not exist')
  if (
    ids.has('SASL_AUTHENTICATION_FAILED') ||
    all.some(each => text(each, 'code') === 'PLT_KFK_AUTHENTICATION')
  )
    return fail('credentials: the broker does not take them')
  if ([...ids].some(id => id?.endsWith('_AUTHORIZATION_FAILED')))
    return fail('credentials: they do not allow to write to the topic')
  const id = [...ids].find(each => each !== undefined)
  if (id !== undefined) return fail(`broker: ${id}`)
  if (all.some(each => each.message === 'Request timed out')) return fail('timeout')
  if (all.some(each => each.message.endsWith('timed out.'))) return fail('connect_timeout')
  const system = all.find(each =>
    /^(?:E[A-Z]+|ERR_|CERT_|[A-Z_]*(?:CERT|SIGNATURE))/.test(text(each, 'code') ?? '')
  )
  if (system) return failureOf(system)
  return fail(
    all.some(each => text(each, 'code') === 'PLT_KFK_NETWORK') ? 'connection_closed' : 'error: kafka'
  )
}

const fail = (reason: string): Extract<Outcome, { kind: 'failed' }> => ({ kind: 'failed', reason })

function* tree(error: unknown, depth = 0): Generator<Error> {
  if (!(error instanceof Error) || depth > 10) return
  yield error
  yield* tree(error.cause, depth + 1)
  if (error instanceof AggregateError) for (const each of error.errors) yield* tree(each, depth + 1)
}

function text(error: Error, name: string): string | undefined {
  const value: unknown = Reflect.get(error, name)
  return typeof value === 'string' ? value : undefined
}
