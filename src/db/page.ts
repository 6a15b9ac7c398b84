// A page of a list: by a keyset that new rows cannot shift.

import { and, eq, inArray, sql, type SQL, type PgColumn } from './drizzle.ts'
import { textArray } from './arrays.ts'
import { task } from './schema.ts'
import { highestUuid, uuidAt } from '../domain/ids.ts'

/** The filters of every list. `cursor` is from the last page; a list is sorted from the newest to the oldest. */
export interface ListFilter {
  messageCodes: readonly string[] | null
  messageCode?: string
  downstream?: string
  from: Date
  to?: Date
  cursor?: string
  limit: number
}

export const upTo = (filter: ListFilter): string =>
  filter.cursor ?? (filter.to ? uuidAt(filter.to) : highestUuid)

/** The page of `rows`. If more pages follow, `rows` has one row more than the page. */
export function paged<Row>(
  { limit }: Pick<ListFilter, 'limit'>,
  rows: readonly Row[],
  cursorOf: (row: Row) => string
): { page: Row[]; next: { nextCursor?: string } } {
  const page = rows.slice(0, limit)
  const last = page.at(-1)
  return { page, next: rows.length > limit && last ? { nextCursor: cursorOf(last) } : {} }
}

/** The same for a bounded look: if it ended before the page was full, the page is partial, and the next page continues at `until`. */
export function pagedLook<Row>(
  filter: ListFilter,
  { rows, until }: { rows: readonly Row[]; until?: string },
  cursorOf: (row: Row) => string
): { page: Row[]; next: { nextCursor?: string; partial?: true } } {
  if (until === undefined) return paged(filter, rows, cursorOf)
  return { page: rows.slice(0, filter.limit), next: { nextCursor: until, partial: true } }
}

/** A condition, if the request has a value. For an enumeration a request may contain any text. */
export const is = (column: PgColumn | SQL, value: string | number | boolean | undefined): SQL | undefined =>
  value === undefined ? undefined : eq(column as PgColumn, value)

export const ofMessages = (
  { messageCodes, messageCode }: Pick<ListFilter, 'messageCodes' | 'messageCode'>,
  column: PgColumn | SQL = task.messageCode
): SQL | undefined =>
  and(messageCodes ? inArray(column as PgColumn, [...messageCodes]) : undefined, is(column, messageCode))

/** The same for plain SQL: only these messageCodes; null: all. */
export function ofCodes(codes: readonly string[] | null, column: string): SQL {
  const list = codes && textArray(codes)
  return sql`(${list}::text[] is null or ${sql.raw(column)} = any(${list}::text[]))`
}

/** The most rows that a list reads. Then it is partial, and its cursor is the place to continue. */
export const mostLooked = 20_000
/** Counts end here. */
export const mostCounted = 10_000

/** A count as the API returns it: `10,000+` beyond 10,000; `37+` if not all rows were read. */
export const countText = (count: number, isPartial = false): number | string => {
  if (count > mostCounted) return `${mostCounted.toLocaleString('en')}+`
  return isPartial ? `${count.toLocaleString('en')}+` : count
}

/** Escapes a text, so that it stands for itself in a LIKE pattern. */
export const literally = (text: string): string => text.replaceAll(/[\\%_]/g, char => `\\${char}`)
