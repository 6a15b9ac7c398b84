// Columns and conditions that several tables have in the same form.
import { sql, customType, timestamp, type AnyPgColumn } from './drizzle.ts'

export const bytea = customType<{ data: Uint8Array; driverData: Uint8Array | string }>({
  dataType: () => 'bytea',
  fromDriver: value => (typeof value === 'string' ? Buffer.from(value.slice(2), 'hex') : value)
})
export const at = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true })
export const oneOf = (column: AnyPgColumn, words: readonly (string | number)[]) =>
  sql`${column} in (${sql.raw(words.map(word => (typeof word === 'number' ? word : `'${word}'`)).join(', '))})`
