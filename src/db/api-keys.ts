import { createHash, randomBytes } from 'node:crypto'
import { batcher } from './batch.ts'
import { plainArray } from './arrays.ts'
import { actor } from './audit.ts'
import { asc, getTableColumns } from './drizzle.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { apiKey } from './schema.ts'
import type { Actor } from '../domain/types.ts'

export const scopes = ['tasks:write', 'tasks:read', 'ops:read', 'ops:write'] as const
export type Scope = (typeof scopes)[number]

export interface ApiKey {
  id: string
  name: string
  scopes: readonly string[]
  /** Null: every message code. */
  messageCodes: readonly string[] | null
}

export interface NewKey {
  name: string
  scopes: Scope[]
  messageCodes: string[] | null
  who: Actor
}

/** The key itself is only in this result. It has 256 random bits: a plain hash of it is enough, and fast. */
export async function createKey(
  sql: Sql,
  { name, scopes, messageCodes, who }: NewKey
): Promise<{ id: string; key: string }> {
  const id = `key_${randomBytes(6).toString('hex')}`
  const key = `ack_${randomBytes(32).toString('base64url')}`
  await sql`
    with made as (
      insert into api_key (id, name, hash, scopes, message_codes)
      values (${id}, ${name}, ${hashKey(key)}, ${scopes}, ${messageCodes})
      returning id, name, scopes, message_codes
    )
    insert into audit (who, key_id, what, target, detail)
    select ${actor(sql, who)}, 'key.created', id, jsonb_build_object('name', name, 'scopes', scopes, 'messageCodes', message_codes)
    from made`
  return { id, key }
}

const { hash: _, ...listed } = getTableColumns(apiKey)

/** The oldest first, also those that are revoked. */
export async function listApiKeys(db: Pick<Reads['db'], 'select'>) {
  return await db.select(listed).from(apiKey).orderBy(asc(apiKey.createdAt), asc(apiKey.id))
}

/** False: there is no such key, or it is revoked already. */
export async function revokeKey(sql: Sql, { id, who }: { id: string; who: Actor }): Promise<boolean> {
  const rows = await sql`
    with revoked as (
      update api_key set revoked_at = now() where id = ${id} and revoked_at is null returning id
    )
    insert into audit (who, key_id, what, target) select ${actor(sql, who)}, 'key.revoked', id from revoked returning id`
  return rows.length > 0
}

/** The duration of a session after a sign-in with a key. Only hashes of sessions are stored, and a session ends with its key. */
export const sessionHours = 12
/** Sessions of one key at the same time. A sign-in beyond them ends the oldest. */
export const mostSessions = 100

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
    ), oldest as (
      -- The new one is not seen here. Two sign-ins at once end the same ones: neither waits for the other.
      select hash from session where hash in (
        select s.hash from session s join made on made.key_id = s.key_id
        order by s.expires_at desc, s.hash offset ${mostSessions - 1}
      ) for update skip locked
    ), ended as (
      delete from session where hash in (select hash from oldest)
    )
    insert into audit (who, key_id, what, target)
    select k.name, k.id, 'session.created', k.id from made join api_key k on k.id = made.key_id
    returning id`
  return rows.length > 0
}

export async function endSession(sql: Sql, hash: string): Promise<void> {
  await sql`
    with ended as (delete from session where hash = ${hash} returning key_id)
    insert into audit (who, key_id, what, target)
    select k.name, k.id, 'session.ended', k.id from ended join api_key k on k.id = ended.key_id`
}

/** The keys by the hash of a key or of a session, in the order of `hashes`; null: unknown, revoked or expired. */
async function findKeys(sql: Sql, hashes: readonly string[]): Promise<(ApiKey | null)[]> {
  const rows = await sql<(ApiKey & { hash: string })[]>`
    select hash, id, name, scopes, message_codes as "messageCodes" from api_key
    where hash = any(${plainArray(hashes)}::text[]) and revoked_at is null
    union all
    select s.hash, k.id, k.name, k.scopes, k.message_codes from session s join api_key k on k.id = s.key_id
    where s.hash = any(${plainArray(hashes)}::text[]) and s.expires_at > now() and k.revoked_at is null`
  const found = new Map(rows.map(({ hash, ...key }) => [hash, key]))
  return hashes.map(hash => found.get(hash) ?? null)
}

/** Null: unknown or revoked. */
export async function findKey(sql: Sql, hash: string): Promise<ApiKey | null> {
  const [key] = await findKeys(sql, [hash])
  return key ?? null
}

/**
 * The same for many requests at once. It needs no limit on guesses: requests that arrive during a statement share the next
 * one, and while unknown keys are among them, only a few dozen statements run each second.
 */
export function keyFinder(
  find: (hashes: string[]) => Promise<(ApiKey | null)[]>
): (hash: string) => Promise<ApiKey | null> {
  let guessed = false
  const lookUps = batcher({
    max: 1_000,
    restMs: 50,
    isUrgent: () => !guessed,
    async write(hashes: string[]) {
      const keys = await find(hashes)
      guessed = keys.includes(null)
      return keys
    }
  })
  return lookUps.add
}

export const openKeyFinder = (sql: Sql): ReturnType<typeof keyFinder> =>
  keyFinder(hashes => findKeys(sql, hashes))

export function hashKey(key: string): string {
  return createHash('sha256').update(key).digest('hex')
}
