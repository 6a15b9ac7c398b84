// The size of jsonb as text. A number of eight stored bytes may have 131,072 digits before its point and 16,383 behind it, so a stored size
// says little, and a text that is built to be measured may end at PostgreSQL's limit of 1 GB, or the time limit of the statement.
import type { PostgresClient } from './pool.ts'

/**
 * Beyond this many stored bytes, or bytes out of storage, a value is larger than any that is read. Stored, it may be compressed. The text of
 * a small value has at most 3 MiB.
 */
const most = { small: 256, stored: 65_536, unpacked: 524_288, text: 4_194_304 }

/**
 * SQL for PostgreSQL 12 or newer: the bytes of a jsonb column as text, for a text of at most 65,536; of a larger one a number above that. Builds a text only if it has
 * at most 4 MiB, with each number at the longest that its magnitude allows.
 */
export const textBytes = (sql: Pick<PostgresClient, 'unsafe'>, column: 'extend' | 'members' | '"after"') =>
  sql.unsafe(`case
    when ${column} is null then null
    when pg_column_size(${column}) > ${most.stored} then pg_column_size(${column})
    when pg_column_size(${column} || '{}') > ${most.unpacked} then pg_column_size(${column} || '{}')
    when pg_column_size(${column} || '{}') <= ${most.small} then octet_length(${column}::text)
    else (
      select case when digits > ${most.text} then digits else octet_length(${column}::text) end
      from (
        select coalesce(sum(scale(n::numeric) + case
          when abs(n::numeric) < 1e20 then 20 when abs(n::numeric) < 1e400 then 400
          when abs(n::numeric) < 1e4000 then 4000 else 131072 end), 0)::bigint as digits
        from jsonb_path_query(${column}, 'strict $.** ? (@.type() == "number")') n
      ) numbers
    ) end`)
