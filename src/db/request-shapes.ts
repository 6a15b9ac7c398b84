// What requests have in common: the transport, the method and the names of the headers.
import { inArray } from './drizzle.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { requestShape } from './schema.ts'
import { textArray } from './arrays.ts'

export type RequestShape = Omit<typeof requestShape.$inferSelect, 'createdAt'>

/** The newest of a downstream that are kept: each deploy may bring one. Beyond, old attempts lose their names. */
const kept = 1_000

/** Any process may have written it already. */
export async function writeShape(sql: Sql, shape: RequestShape): Promise<void> {
  const { id, messageCode, downstream, handlerVersion, transport, method, headerNames } = shape
  await sql`
    with gone as (
      delete from request_shape where id in (
        select id from request_shape where message_code = ${messageCode} and downstream = ${downstream}
        order by created_at desc, id offset ${kept - 1}
      )
    )
    insert into request_shape (id, message_code, downstream, handler_version, transport, method, header_names)
    values (${id}, ${messageCode}, ${downstream}, ${handlerVersion}, ${transport}, ${method},
      coalesce(${textArray(headerNames)}::text[], '{}'))
    on conflict do nothing`
}

/** By id. */
export async function readShapes(
  { db }: Reads,
  ids: readonly number[]
): Promise<ReadonlyMap<number, RequestShape>> {
  if (ids.length === 0) return new Map()
  const rows = await db
    .select()
    .from(requestShape)
    .where(inArray(requestShape.id, [...new Set(ids)]))
  return new Map(rows.map(row => [row.id, row]))
}
