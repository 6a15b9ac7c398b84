// The audit: acts of operators, written and listed. Acts on API keys, downstreams, an archive or an alarm, and checks of half messages
// write their row in their own statement.
import { and, desc, gte, lt, sql } from './drizzle.ts'
import { is, paged } from './page.ts'
import type { Sql } from './pool.ts'
import type { Reads } from './reads.ts'
import { audit } from './schema.ts'
import { present } from '../domain/optional-members.ts'
import type { Actor } from '../domain/types.ts'

export interface AuditEntry {
  who: Actor
  what: string
  target?: string
  detail?: { [name: string]: AuditDetail }
}
type AuditDetail =
  | string
  | number
  | boolean
  | null
  | undefined
  | AuditDetail[]
  | { [name: string]: AuditDetail }

/** The values of `who` and `key_id`, for a statement that writes its audit row itself. */
export const actor = (sql: Sql, { name, keyId }: Actor) => sql`${name}, ${keyId ?? null}`

/** Who did what; never a body, a key or a token. */
export async function writeAudit(sql: Sql, { who, what, target, detail }: AuditEntry): Promise<void> {
  await sql`
    insert into audit (who, key_id, what, target, detail)
    values (${actor(sql, who)}, ${what}, ${target ?? null}, ${detail ? sql.json(detail as never) : null})`
}

export interface AuditFilter {
  who?: string
  keyId?: string
  what?: string
  target?: string
  from?: Date
  to?: Date
  cursor?: string
  limit: number
}

/** Acts on the target and, if it is a task, the bulk redeliveries that changed one of its deliveries. */
const isAbout = (target: string) => sql`
  ${audit.target} = any(array[${target}] || array(
    select o.id::text from task t cross join operation o
    where t.task_no = ${target} and exists (
      select from operation_delivery i
      where i.operation_id = o.id and i.task_id = t.id and i.result is distinct from 'skipped'
    )
  )) and (${audit.target} = ${target} or ${audit.what} = 'tasks.redeliver')`

/** The newest first. The cursor is the id of the last one. */
export async function listAudit({ db }: Reads, filter: AuditFilter) {
  if (filter.cursor !== undefined && !/^\d{1,15}$/.test(filter.cursor)) return 'bad_cursor' as const
  const rows = await db
    .select()
    .from(audit)
    .where(
      and(
        filter.cursor === undefined ? undefined : lt(audit.id, Number(filter.cursor)),
        is(audit.who, filter.who),
        is(audit.keyId, filter.keyId),
        is(audit.what, filter.what),
        filter.target === undefined ? undefined : isAbout(filter.target),
        filter.from && gte(audit.at, filter.from),
        filter.to && lt(audit.at, filter.to)
      )
    )
    .orderBy(desc(audit.id))
    .limit(filter.limit + 1)
  const { page, next } = paged(filter, rows, row => String(row.id))
  const acts = page.map(({ id, at, who, keyId, what, target, detail }) => ({
    id: String(id),
    at: at.toISOString(),
    who,
    ...present('keyId', keyId),
    what,
    ...present('target', target),
    ...present('detail', detail)
  }))
  return { audit: acts, ...next }
}
