// A page of a list: by a keyset that new rows cannot shift.

import { and, eq, inArray, type SQL } from 'drizzle-orm'
import type { PgColumn } from 'drizzle-orm/pg-core'
import { task } from './schema.ts'
import { uuidAt } from '../domain/ids.ts'

/** What every list can be narrowed by. `cursor` is the last page's; a list goes from the newest to the oldest. */
export interface Window {
  messageCodes: readonly string[] | null
  messageCode?: string
  downstream?: string
  from: Date
  to?: Date
  cursor?: string
  limit: number
}

/** The form of a cursor's id. */
export const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/
const highest = 'ffffffff-ffff-ffff-ffff-ffffffffffff'

export const upTo = (window: Window): string => window.cursor ?? (window.to ? uuidAt(window.to) : highest)

/** The page of rows that are one more than it, where there are more. */
export function paged<Row>(
  { limit }: Window,
  rows: readonly Row[],
  cursorOf: (row: Row) => string
): { page: Row[]; next: { nextCursor?: string } } {
  const page = rows.slice(0, limit)
  const last = page.at(-1)
  return { page, next: rows.length > limit && last ? { nextCursor: cursorOf(last) } : {} }
}

/** A condition where a value is asked for. Values of an enumeration come from requests as any text. */
export const is = (column: PgColumn | SQL, value: string | number | boolean | undefined): SQL | undefined =>
  value === undefined ? undefined : eq(column as PgColumn, value)

export const ofMessages = (
  { messageCodes, messageCode }: Window,
  column: PgColumn | SQL = task.messageCode
): SQL | undefined =>
  and(messageCodes ? inArray(column as PgColumn, [...messageCodes]) : undefined, is(column, messageCode))
