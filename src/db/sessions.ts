// Sessions of people who signed in with a key. Only hashes are kept; a session ends with its key.
import type { Sql } from './pool.ts'

export const sessionHours = 12

/** By hashes in hex. False: no such key, or it is revoked. */
export async function createSession(
  sql: Sql,
  { hash, keyHash }: { hash: string; keyHash: string }
): Promise<boolean> {
  const rows = await sql`
    with made as (
      insert into session (hash, key_id, expires_at)
      select ${hash}, id, now() + ${sessionHours} * interval '1 hour' from api_key
      where hash = ${keyHash} and revoked_at is null
      returning key_id
    )
    insert into audit (who, what, target)
    select k.name, 'session.created', k.id from made join api_key k on k.id = made.key_id
    returning id`
  return rows.length > 0
}

export async function endSession(sql: Sql, hash: string): Promise<void> {
  await sql`
    with ended as (delete from session where hash = ${hash} returning key_id)
    insert into audit (who, what, target)
    select k.name, 'session.ended', k.id from ended join api_key k on k.id = ended.key_id`
}
