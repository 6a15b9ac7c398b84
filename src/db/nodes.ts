// The list of the processes. What they write of themselves: cluster.ts.
import { asc, getTableColumns, sql } from './drizzle.ts'
import { isLive } from './owners.ts'
import type { Reads } from './reads.ts'
import { node } from './schema.ts'
import { present } from '../domain/optional-members.ts'

/** Without `handles`, which may be long. */
const { handles: _, ...shown } = getTableColumns(node)

/** Processes that have lived within the last hour. */
export async function listNodes({ db }: Reads) {
  const rows = await db
    .select({ row: shown, live: sql<boolean>`${sql.raw(isLive)}` })
    .from(node)
    .orderBy(asc(node.id))
  return rows.map(({ row, live }) => ({
    id: row.id,
    roles: row.roles.split(','),
    version: row.version,
    live,
    startedAt: row.startedAt.toISOString(),
    seenAt: row.seenAt.toISOString(),
    ...present('secret', row.secrets?.[0]),
    ...present('queue', row.queue),
    ...present('handlers', row.handlers),
    yielded: (row.yielded ?? []).filter(one => new Date(one.until) > new Date())
  }))
}
