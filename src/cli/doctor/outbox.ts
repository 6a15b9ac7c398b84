import { readOutboxStuck } from '../../db/outbox-alarm.ts'
import { readOutboxState, type OutboxState } from '../../db/outbox.ts'
import type { Sql } from '../../db/pool.ts'
import { fix, ok, warn, type Finding } from './finding.ts'

/** `stuck`: the reason of the open alarm about it. */
export type OutboxFacts = OutboxState & { stuck?: string | undefined }

/** Undefined without the tables, or without rights on them. */
export async function lookAtOutbox(
  sql: Sql,
  { forbidden, isMigrated }: { forbidden: readonly string[]; isMigrated: boolean }
): Promise<OutboxFacts | undefined> {
  const [table] = await sql<{ there: boolean }[]>`select to_regclass('outbox') is not null as there`
  if (!table?.there || forbidden.some(name => name.startsWith('outbox'))) return undefined
  const mayReadAlarms = isMigrated && !forbidden.includes('alarm')
  return { ...(await readOutboxState(sql)), stuck: mayReadAlarms ? await readOutboxStuck(sql) : undefined }
}

export function judgeOutbox(outbox: OutboxFacts | undefined): Finding {
  if (outbox === undefined) return ok('no tables yet')
  const { waiting, oldestMs, rejected, stuck } = outbox
  const seconds = Math.round(oldestMs / 1000)
  const rows = waiting === 1 ? '1 row waits' : `${waiting} rows wait`
  const found = waiting === 0 ? 'empty' : `${rows}, the oldest for ${seconds} s`
  if (stuck !== undefined && waiting > 0)
    return fix(
      `${found}; ${stuck}`,
      'look for outbox.failed and outbox.unmovable in the log of a dispatcher; the latter names the row to delete from the table outbox'
    )
  if (seconds > 60)
    return warn(found, 'start a process with ROLE=dispatcher; if one runs, look for outbox.failed in its log')
  if (rejected === 0) return ok(found)
  return warn(
    `${found}; ${rejected} rejected`,
    'GET /outbox/rejected shows the problems; POST /outbox/rejected/ID/retry tries a row again, DELETE removes it'
  )
}
