// PostgreSQL array literals, written by hand: they are the larger part of what a batch costs us in JavaScript.
// Source of the format: PostgreSQL manual, "Arrays", section "Array Input and Output Syntax".

import type { Sql } from './pool.ts'

type Plain = string | number | boolean | null | undefined

// A list of nothing but nulls is sent as null: `unnest` of several arrays fills up what is shorter. A third of the columns of
// an ordinary batch are such, and PostgreSQL reads each NULL in a list one by one.

/** For values that need no quotes: uuids, numbers, booleans. null and undefined become NULL. */
export function plainArray(values: readonly Plain[]): string | null {
  if (isNothing(values)) return null
  let text = '{'
  for (let i = 0; i < values.length; i++) text += (i ? ',' : '') + (values[i] ?? 'NULL')
  return text + '}'
}

/** For any text. Quoted always: bare `null` would be no text at all. */
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

/** To look first is a tenth of the price of a replacement that finds nothing, and two plain ones cost less than one by a pattern. */
function quoted(value: string): string {
  const text = value.includes('\\') ? value.replaceAll('\\', '\\\\') : value
  return `"${text.includes('"') ? text.replaceAll('"', '\\"') : text}"`
}

/**
 * For texts of JSON, full of quotes, each of which an array literal would escape: for `string_to_array($1, chr(31), '')`.
 * JSON holds no control character but white space (RFC 8259, section 2), and is never empty: so null can be.
 */
export const jsonTexts = (values: readonly (string | null)[]): string => values.join('\u001f')

/** The condition that a column holds one of these texts; null: any. */
export function isAnyOf(sql: Sql, texts: readonly string[] | null, column: string) {
  const list = texts && textArray(texts)
  return sql`(${list}::text[] is null or ${sql(column)} = any(${list}::text[]))`
}

/** What `string_agg(ord::text, ',')` gives: the ordinals of an array parameter, 1-based; as 0-based indexes. */
export const indexes = (agg: string | null): number[] =>
  agg ? agg.split(',').map(ord => Number(ord) - 1) : []
