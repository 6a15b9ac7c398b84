import { eq } from './drizzle.ts'
import type { LoadedDelivery } from './deliveries.ts'
import type { Reads } from './reads.ts'
import { delivery, task } from './schema.ts'

/** The deliveries of a task as they would be sent now, whatever their status is. No process owns them. */
export async function readStoredDeliveries(
  { db }: Reads,
  taskNo: string
): Promise<(LoadedDelivery & { isInFlight: boolean })[]> {
  const rows = await db
    .select({ of: task, row: delivery })
    .from(delivery)
    .innerJoin(task, eq(task.id, delivery.taskId))
    .where(eq(task.taskNo, taskNo))
  return rows.map(({ of, row }) => ({
    task: of,
    downstream: row.downstream,
    attempt: row.attempt,
    roundFrom: row.roundFrom,
    triesLeft: row.triesLeft,
    lost: row.lost,
    needsReceipt: row.needsReceipt,
    leaseLeftMs: 0,
    claimedMs: 0,
    deliverBeforeLeftMs: null,
    round: row.round ?? 1,
    roundAt: row.roundAt ?? latest(row.createdAt, of.deliverStartTime),
    roundMs: 0,
    position: row.position,
    isInFlight: row.phase === 'IN_FLIGHT'
  }))
}

const latest = (one: Date, other: Date | null): Date => (other !== null && other > one ? other : one)
