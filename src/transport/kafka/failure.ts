import type { ProduceResult } from '@platformatic/kafka'
import type { Outcome } from '../../domain/types.ts'
import { failed, Failure, failureOf } from '../failure.ts'
import type { Confirmed } from './partitions.ts'
import { isError } from '../../runtime/text-of.ts'

export type NotDelivered = Exclude<Outcome, { kind: 'delivered' }>

const unknownError = 'UNKNOWN_SERVER_ERROR'

/** The outcome of a client's error. Errors nest, by `cause` and by `errors`; any known one among them decides. */
export function outcomeOf(error: unknown): NotDelivered {
  const all = [...tree(error)]
  const judged = all.find(each => each instanceof Failure)
  if (judged) return judged.outcome
  const ids = new Set(all.map(each => text(each, 'apiId')))
  if (ids.has('MESSAGE_TOO_LARGE') || ids.has('RECORD_LIST_TOO_LARGE'))
    return { kind: 'refused', reason: 'too_large: larger than the topic accepts' }
  if (ids.has('INVALID_TOPIC_EXCEPTION')) return failed('bad_request: invalid topic name')
  if (
    ids.has('UNKNOWN_TOPIC_OR_PARTITION') ||
    ids.has('UNKNOWN_TOPIC_ID') ||
    all.some(each => each.message.startsWith('Unknown topic '))
  )
    return failed('target_missing: the topic does not exist')
  if (
    ids.has('SASL_AUTHENTICATION_FAILED') ||
    all.some(each => text(each, 'code') === 'PLT_KFK_AUTHENTICATION')
  )
    return failed('credentials: the broker does not take them')
  if ([...ids].some(id => id?.endsWith('_AUTHORIZATION_FAILED')))
    return failed('credentials: they do not allow to write to the topic')
  // The client gives the texts about single records, which come first, the code of an unknown error.
  ids.delete(undefined)
  const id = [...ids].find(each => each !== unknownError) ?? [...ids][0]
  if (id !== undefined) return failed(`broker: ${id}`)
  if (all.some(each => each.message === 'Request timed out')) return failed('timeout')
  if (all.some(each => each.message.endsWith('timed out.'))) return failed('connect_timeout')
  const system = all.find(each =>
    /^(?:E[A-Z]+|ERR_|CERT_|[A-Z_]*(?:CERT|SIGNATURE))/.test(text(each, 'code') ?? '')
  )
  if (system) return failureOf(system)
  return failed(
    all.some(each => text(each, 'code') === 'PLT_KFK_NETWORK') ? 'connection_closed' : 'error: kafka'
  )
}

/** What the failed call of one topic has written: the error of one partition, or of one broker, fails all of the call. */
export function confirmedIn(error: unknown): Confirmed[] {
  const confirmed: Confirmed[] = []
  for (const each of tree(error)) {
    const { produced, response } = each as FailedProduce
    confirmed.push(...(produced?.offsets ?? []))
    for (const { partitionResponses } of response?.responses ?? [])
      for (const { index, errorCode, recordErrors, baseOffset } of partitionResponses)
        if (errorCode === 0 && !recordErrors?.length) confirmed.push({ partition: index, offset: baseOffset })
  }
  return confirmed
}

/** The members of the client's errors: what other brokers have confirmed, and the answer that holds the error. */
interface FailedProduce extends Error {
  produced?: ProduceResult
  response?: {
    responses?: {
      partitionResponses: {
        index: number
        errorCode: number
        baseOffset: bigint
        /** Since version 8. */
        recordErrors?: unknown[]
      }[]
    }[]
  }
}

function* tree(error: unknown, depth = 0): Generator<Error> {
  if (!isError(error) || depth > 10) return
  yield error
  yield* tree(error.cause, depth + 1)
  if (error instanceof AggregateError) for (const each of error.errors) yield* tree(each, depth + 1)
}

function text(error: Error, name: string): string | undefined {
  const value: unknown = Reflect.get(error, name)
  return typeof value === 'string' ? value : undefined
}
