import { at, bigint, integer, pgTable, text } from './drizzle.ts'

/**
 * What the requests of one version of a handler to one downstream have in common: mostly one row, several if its requests differ in
 * it. `id` is a hash of the other columns, so that each process knows it without asking.
 */
export const requestShape = pgTable('request_shape', {
  id: bigint('id', { mode: 'number' }).primaryKey(),
  messageCode: text('message_code').notNull(),
  downstream: text('downstream').notNull(),
  handlerVersion: integer('handler_version').notNull(),
  transport: text('transport').notNull(),
  method: text('method'),
  headerNames: text('header_names').array().notNull(),
  createdAt: at('created_at').notNull().defaultNow()
})
