import type { AlarmKind } from '../domain/types.ts'
import { plainArray, textArray } from './arrays.ts'
import type { Sql } from './pool.ts'
import type { attempt } from './schema.ts'

export type RequestColumns = Pick<
  typeof attempt.$inferSelect,
  'requestShape' | 'target' | 'bodyBytes' | 'bodySha256'
>

/** One row of `attempt`: the outcome, with its bounded evidence. */
export type AttemptRow = Omit<
  typeof attempt.$inferSelect,
  'taskId' | 'downstream' | 'attempt' | 'handlerVersion' | keyof RequestColumns
> & {
  handlerVersion?: number | null
  /** What was sent. Undefined: a first attempt that was delivered, or nothing was sent. */
  request?: RequestColumns | undefined
  /** The alarm to raise at the first such attempt of a round. */
  alarm: Exclude<AlarmKind, 'FAILED'> | null
}

/** PostgreSQL's hex form of bytes. */
export const bytea = (bytes: Uint8Array | null): string | null =>
  bytes && '\\x' + Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex')

/** What was sent, for `unnest`, which fills up empty lists with nulls: those of nearly all batches. */
export function requestArrays(sql: Sql, rows: readonly { attempt: AttemptRow }[]) {
  const requests = rows.some(row => row.attempt.request) ? rows.map(row => row.attempt.request) : []
  return sql`
        ${plainArray(rows.map(row => row.attempt.handlerVersion))}::int[],
        ${plainArray(requests.map(one => one?.requestShape))}::bigint[],
        ${textArray(requests.map(one => one?.target))}::text[],
        ${plainArray(requests.map(one => one?.bodyBytes))}::int[],
        ${textArray(requests.map(one => bytea(one?.bodySha256 ?? null)))}::bytea[]`
}
/** The names of these columns. */
export const requestNames = 'handler_version, request_shape, target, body_bytes, body_sha256'
