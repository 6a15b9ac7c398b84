// PostgreSQL array literals, written by hand: they are the larger part of the cost of a batch in JavaScript.
// Source of the format: PostgreSQL manual, "Arrays", section "Array Input and Output Syntax".

import type { Sql } from './pool.ts'

type Plain = string | number | boolean | null | undefined

// A list of only nulls is sent as null: `unnest` of several arrays fills up the shorter ones. A third of the columns of an
// ordinary batch are such lists, and PostgreSQL reads each NULL in a list one by one.

/** For values that need no quotes: uuids, numbers, booleans. null and undefined become NULL. */
export function plainArray(values: readonly Plain[]): string | null {
  if (isNothing(values)) return null
  let text = '{'
  for (let i = 0; i < values.length; i++) text += (i ? ',' : '') + (values[i] ?? 'NULL')
  return text + '}'
}

/** For any text. It is always quoted: an unquoted `null` would become NULL. */
export function textArray(values: readonly (string | null | undefined)[]): string | null {
  if (isNothing(values)) return null
  let text = '{'
  for (let i = 0; i < values.length; i++) {
    const value = values[i]
    if (i) text += ','
    text += value === null || value === undefined ? 'NULL' : quoted(value)
  }
  return text + '}'
}

const isNothing = (values: readonly unknown[]): boolean =>
  values.length > 0 && values.every(value => value === null || value === undefined)

/** `includes` costs a tenth of a replacement that finds nothing, and two plain replacements cost less than one by a pattern. */
function quoted(value: string): string {
  const text = value.includes('\\') ? value.replaceAll('\\', '\\\\') : value
  return `"${text.includes('"') ? text.replaceAll('"', '\\"') : text}"`
}

/**
 * For texts of JSON, whose many quotes an array literal would escape: for `string_to_array($1, chr(31), '')`. JSON has
 * no control character but white space (RFC 8259, section 2) and is never empty, so the empty text stands for null.
 */
export const jsonTexts = (values: readonly (string | null)[]): string => values.join('\u001f')

/** The condition that a column holds one of these texts; null: any. */
export function isAnyOf(sql: Sql, texts: readonly string[] | null, column: string) {
  const list = texts && textArray(texts)
  return sql`(${list}::text[] is null or ${sql(column)} = any(${list}::text[]))`
}

/** The 1-based ordinals of an array parameter, as `string_agg(ord::text, ',')` returns them; as 0-based indexes. */
export const indexes = (agg: string | null): number[] =>
  agg ? agg.split(',').map(ord => Number(ord) - 1) : []

/** These keys of the rows of a CTE as one text. Null if none of `all` is missing, nearly always: no list to build, send and split. */
export const unlessAll = (sql: Sql, all: number, key: ReturnType<Sql>) =>
  sql`case when count(*) < ${all} then coalesce(string_agg(${key}, ','), '') end`

/** The keys of a `string_agg`. */
export const setOf = (agg: string | null): ReadonlySet<string> | null =>
  agg === null ? null : new Set(agg.split(','))
