// Searches for a page of a list of deliveries, as search.ts does for tasks.
import { and, sql, type SQL } from './drizzle.ts'
import { is, mostLooked } from './page.ts'
import { lastFingerprint, lastReason, type Reads } from './reads.ts'
import { delivery } from './schema.ts'
import {
  allSending,
  hasText,
  mostOf,
  downstreamsWith,
  number,
  ofRow,
  pageOf,
  sendingAreFew,
  type SearchResult,
  type TaskFilter
} from './search.ts'
import { uuidAt } from '../domain/ids.ts'
import type { Reason, Status } from '../domain/types.ts'

/** The reasons of deliveries that are not FAILED. */
const endings: Reason[] = ['DELETED', 'SKIPPED']

export type DeliveryFilter = Omit<TaskFilter, 'status' | 'needCallback' | 'checked'> & {
  status?: Status
  phase?: string
  /** The fingerprint of its last failure. */
  fingerprint?: string
}

/** The keys of a page of deliveries, newest task first, after `(id, name)`. */
export async function searchDeliveries(
  reads: Reads,
  filter: DeliveryFilter,
  [id, name]: [id: string, name: string]
): Promise<SearchResult<{ task_id: string; downstream: string }>> {
  const page = and(
    sql`(delivery.task_id, delivery.downstream) < (${id}::uuid, ${name})`,
    sql`delivery.task_id >= ${uuidAt(filter.from)}::uuid`
  )
  const conditions = and(
    ofRow(filter),
    is(sql`delivery.downstream`, filter.downstream),
    is(sql`delivery.status`, number(filter.status)),
    is(sql`delivery.phase`, filter.phase),
    is(sql`delivery.reason`, filter.reason),
    hasText(lastReason(delivery.taskId, delivery.downstream), filter.lastReason),
    is(lastFingerprint(delivery.taskId, delivery.downstream), filter.fingerprint),
    sql`true`
  )
  const from = (look: SQL): SQL => sql`
    select delivery.task_id, delivery.downstream
    from (${look}) look
      cross join lateral (select * from delivery where task_id = look.task_id and downstream = look.downstream offset 0) delivery
      cross join lateral (select * from task where id = look.task_id offset 0) task
    where ${and(page, conditions)}
    order by delivery.task_id desc, delivery.downstream desc
    limit ${filter.limit + 1}`
  const isSendingAsked = filter.status === 'SENDING' || filter.phase !== undefined
  if (isSendingAsked && (await sendingAreFew(reads, filter.downstream)))
    return { rows: await reads.db.execute(sql`${downstreamsWith(0, filter.downstream)} ${from(allSending)}`) }
  const looked = (more: SQL): SQL =>
    filter.status === 'FAILED' || (filter.reason !== undefined && !endings.includes(filter.reason))
      ? sql`select * from (
          select f.task_id, f.downstream from name n cross join lateral (
            select task_id, downstream from delivery
            where downstream = n.downstream and status = 2 and ${page}
            order by task_id desc limit ${mostLooked}
          ) f) delivery
        order by task_id desc, downstream desc ${more}`
      : sql`select task_id, downstream from delivery where ${page} order by task_id desc, downstream desc ${more}`
  const { rows, end } = await pageOf<{ task_id: string; downstream: string }>(reads, {
    head: sql`${downstreamsWith(2, filter.downstream)},`,
    page: from(looked(sql`limit ${mostOf(filter)}`)),
    end: looked(sql`offset ${mostOf(filter) - 1} limit 1`),
    order: sql`task_id desc, downstream desc`,
    limit: filter.limit
  })
  return end ? { rows, until: `${end.task_id}:${end.downstream}` } : { rows }
}
