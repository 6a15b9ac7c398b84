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

/** What was sent, for `unnest`, and the names of these columns. A batch of first successes sends nulls for all but the first. */
export const requestArrays = (sql: Sql, rows: readonly { attempt: AttemptRow }[]) => sql`
        ${plainArray(rows.map(row => row.attempt.handlerVersion))}::int[],
        ${plainArray(rows.map(row => row.attempt.request?.requestShape))}::bigint[],
        ${textArray(rows.map(row => row.attempt.request?.target))}::text[],
        ${plainArray(rows.map(row => row.attempt.request?.bodyBytes))}::int[],
        ${textArray(rows.map(row => bytea(row.attempt.request?.bodySha256 ?? null)))}::bytea[]`
export const requestNames = 'handler_version, request_shape, target, body_bytes, body_sha256'
