// The parts of drizzle-orm that this folder uses, loaded as CommonJS modules. For each ES module Node 24 parses the package.json of its
// package, and that of drizzle-orm is 180 kB: a hundred modules took 0.6 s of CPU at every start.
import { createRequire } from 'node:module'
import type * as Core from 'drizzle-orm'
import type * as Pg from 'drizzle-orm/pg-core'
import type * as PostgresJs from 'drizzle-orm/postgres-js'
import type * as Migrator from 'drizzle-orm/postgres-js/migrator'

export type { InferSelectModel, SQL, Table } from 'drizzle-orm'
export type { PgColumn } from 'drizzle-orm/pg-core'

const require = createRequire(import.meta.url)
const core = require('drizzle-orm') as typeof Core
const pg = require('drizzle-orm/pg-core') as typeof Pg

export const {
  and,
  asc,
  desc,
  eq,
  getTableColumns,
  getTableName,
  gte,
  inArray,
  isNotNull,
  isNull,
  lt,
  relations,
  sql
} = core
export const { alias, check, customType, index, pgTable, primaryKey, QueryBuilder, uniqueIndex } = pg
export const {
  bigint,
  bigserial,
  boolean,
  doublePrecision,
  integer,
  interval,
  json,
  jsonb,
  serial,
  smallint,
  text,
  timestamp,
  uuid
} = pg
export const { drizzle } = require('drizzle-orm/postgres-js') as typeof PostgresJs
export const { migrate } = require('drizzle-orm/postgres-js/migrator') as typeof Migrator

// Columns and conditions that several tables have in the same form.
export const bytea = customType<{ data: Uint8Array; driverData: Uint8Array | string }>({
  dataType: () => 'bytea',
  fromDriver: value => (typeof value === 'string' ? Buffer.from(value.slice(2), 'hex') : value)
})
export const at = <Name extends string>(name: Name) => timestamp(name, { withTimezone: true })
export const oneOf = (column: Pg.AnyPgColumn, words: readonly (string | number)[]) =>
  sql`${column} in (${sql.raw(words.map(word => (typeof word === 'number' ? word : `'${word}'`)).join(', '))})`
