import { createHash, randomBytes } from 'node:crypto'
import { batcher } from './batch.ts'
import { plainArray, textArray } from './arrays.ts'
import { actor } from './audit.ts'
import { and, asc, getTableColumns, sql as drizzleSql } from './drizzle.ts'
import { paged } from './page.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { apiKey } from './schema.ts'
import { Problem } from '../runtime/errors.ts'
import type { Actor } from '../domain/types.ts'

export const scopes = ['tasks:write', 'tasks:read', 'ops:read', 'ops:write'] as const
export type Scope = (typeof scopes)[number]

export interface ApiKey {
  id: string
  name: string
  scopes: readonly string[]
  /** Null: every message code. */
  messageCodes: readonly string[] | null
  /** Keys with the same one share their limits: a key and those that it created, or that a key with its limits created. */
  quotaId: string
}

/** The rights of a key. */
export type Rights = Pick<ApiKey, 'scopes' | 'messageCodes'>

/** The rights of the command line, and of each caller while AUTH is off. */
export const allRights: Rights = { scopes, messageCodes: null }

/** Whether a caller with the rights `own` may do everything that this key may do. */
export const isWithin = (own: Rights, key: Rights): boolean =>
  key.scopes.every(scope => own.scopes.includes(scope)) &&
  (own.messageCodes === null || (key.messageCodes?.every(code => own.messageCodes?.includes(code)) ?? false))

/** `maker`: the key that creates it. Without one: the command line, or AUTH=off. */
export interface NewKey {
  name: string
  scopes: Scope[]
  messageCodes: string[] | null
  who: Actor
  maker?: Omit<ApiKey, 'name'>
}

/** Who acts without a key, in `createdBy` and in the audit. */
const reserved = ['local', 'cli']

/** The most live keys that one key may have created, those that share its limits included. */
export const mostKeysMade = 100

/**
 * The key itself is only in this result. It has 256 random bits: a plain hash of it is enough, and fast. A maker may use its own name and
 * those of keys that it created again, so that a new key can take the place of an old one. The name of any other key is refused.
 */
export async function createKey(
  sql: Sql,
  { name, scopes: wanted, messageCodes, who, maker }: NewKey
): Promise<{ id: string; key: string }> {
  if (reserved.includes(name.toLowerCase())) throw new Problem('API_KEY_NAME_TAKEN', '', { pointer: '/name' })
  const id = `key_${randomBytes(6).toString('hex')}`
  const key = `ack_${randomBytes(32).toString('base64url')}`
  const isOperator = isWithin(maker ?? allRights, allRights)
  const quotaId = isOperator && messageCodes !== null ? null : (maker?.quotaId ?? null)
  const [row] = await sql<[{ refused: 'name' | 'many' | null }]>`
    with asked as materialized (
      select key_refusal(${name}, ${maker?.id ?? null}, ${maker?.quotaId ?? null}, ${isOperator}::boolean, ${mostKeysMade}::int) as refused
    ), made as (
      insert into api_key (id, name, hash, scopes, message_codes, created_by_id, quota_id)
      select ${id}, ${name}, ${hashKey(key)}, ${wanted}::text[], ${messageCodes}::text[], ${maker?.id ?? null}, ${quotaId}
      from asked where refused is null
      returning id, name, scopes, message_codes
    ), audited as (
      insert into audit (who, key_id, what, target, detail)
      select ${actor(sql, who)}, 'key.created', id, jsonb_build_object('name', name, 'scopes', scopes, 'messageCodes', message_codes)
      from made
    )
    select refused from asked`
  if (row.refused === 'name') throw new Problem('API_KEY_NAME_TAKEN', '', { pointer: '/name' })
  if (row.refused === 'many')
    throw new Problem(
      'TOO_MANY_API_KEYS',
      `At most ${mostKeysMade} live keys. Revoke keys that are not used.`
    )
  return { id, key }
}

const { hash: _, quotaId: __, ...listed } = getTableColumns(apiKey)

/** `within`: only keys that a caller with these rights may see. */
export interface KeyListFilter {
  within?: Rights
  cursor?: string
  limit: number
}

/** The oldest first, also those that are revoked. The cursor is the id of the last one: keys are never removed. */
export async function listApiKeys(db: Pick<Reads['db'], 'select'>, filter: KeyListFilter) {
  const { cursor, within } = filter
  const place = drizzleSql`(${apiKey.createdAt}, ${apiKey.id})`
  const rows = await db
    .select(listed)
    .from(apiKey)
    .where(
      and(
        cursor === undefined
          ? undefined
          : drizzleSql`${place} > (select last.created_at, last.id from api_key last where last.id = ${cursor})`,
        within && drizzleSql`${apiKey.scopes} <@ ${textArray(within.scopes)}::text[]`,
        within?.messageCodes
          ? drizzleSql`${apiKey.messageCodes} <@ ${textArray(within.messageCodes)}::text[]`
          : undefined
      )
    )
    .orderBy(asc(apiKey.createdAt), asc(apiKey.id))
    .limit(filter.limit + 1)
  const { page, next } = paged(filter, rows, row => row.id)
  return { apiKeys: page, ...next }
}

/** False: there is no such key that a caller with the rights `within` may revoke, or it is revoked already. */
export async function revokeKey(
  sql: Sql,
  { id, who, within }: { id: string; who: Actor; within?: Rights }
): Promise<boolean> {
  const scopesOf = within ? textArray(within.scopes) : null
  const codes = within?.messageCodes ? textArray(within.messageCodes) : null
  const rows = await sql`
    with revoked as (
      update api_key set revoked_at = now()
      where id = ${id} and revoked_at is null
        and (${scopesOf}::text[] is null or scopes <@ ${scopesOf}::text[])
        and (${codes}::text[] is null or message_codes <@ ${codes}::text[])
      returning id
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
    select hash, id, name, scopes, message_codes as "messageCodes", coalesce(quota_id, id) as "quotaId" from api_key
    where hash = any(${plainArray(hashes)}::text[]) and revoked_at is null
    union all
    select s.hash, k.id, k.name, k.scopes, k.message_codes, coalesce(k.quota_id, k.id) from session s join api_key k on k.id = s.key_id
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
