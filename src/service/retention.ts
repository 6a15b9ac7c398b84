// Removes what is older than RETENTION_DAYS: tasks, their attempts and receipts by the day, ordering keys, operations.
import { openArchive } from './archive.ts'
import type { Config } from './config.ts'
import { removeOldOperations } from '../db/operations.ts'
import { removeOrderingKeys, type OrderingKey } from '../db/ordering.ts'
import { listPartitions, makePartitions, oldestYoung, tendPartition, droppedFrom } from '../db/partitions.ts'
import type { Sql } from '../db/pool.ts'
import { removeOld } from '../db/retention.ts'
import type { Logger } from '../runtime/logger.ts'

export const retentionMs = 60_000
/** After a partition that was locked for a moment. */
const laterMs = 2_000
/** It is said of a partition each time that its drop had to wait so often in a row. */
const oftenLater = 30
const batch = 1_000

export interface RetentionDeps {
  config: Pick<Config, 'retentionDays' | 'archiveDir'>
  sql: Sql
  node: string
  log: Logger
  signal: AbortSignal
}

/** A turn of retention; resolves to the ms until the next. */
export function retention({ config, sql, node, log, signal }: RetentionDeps): () => Promise<number> {
  const { retentionDays: days, archiveDir } = config
  const archive = archiveDir === undefined ? undefined : openArchive(archiveDir, node)
  const onLeft = (taskId: string, err: unknown): void => log.warn({ taskId, err }, 'retention.not_archived')
  let after: string | null = null
  let afterKey: OrderingKey | null = null
  /** When the next walk through the old tasks begins: other steps may need more turns. */
  let walkAt = -Infinity
  let dropAt = -Infinity
  /** How often in a row the drop of a partition had to wait. */
  let laters = new Map<string, number>()
  return async () => {
    const partitions = await listPartitions(sql)
    await makePartitions(sql, partitions)
    const oldest = await oldestYoung(sql, days)
    const whole = droppedFrom(partitions, oldest)
    if (performance.now() >= walkAt) {
      const removing = removeOld(sql, days, batch, after, archive && { ...archive, onLeft }, whole)
      // The archive may be full, or not mounted. That must not hold up the other steps.
      const { removed, next } = await removing.catch((err: unknown) => {
        log.warn({ err }, 'retention.failed')
        return { removed: 0, next: null }
      })
      after = next
      if (removed > 0) log.info({ removed }, 'retention.removed')
      if (next === null) walkAt = performance.now() + retentionMs
    }
    if (after === null && performance.now() >= dropAt) {
      const now = new Map<string, number>()
      for (const partition of partitions.filter(({ high }) => high <= oldest)) {
        if (signal.aborted) return 0
        const became = await tendPartition(sql, partition, batch, signal)
        if (became === 'later') {
          const times = (laters.get(partition.name) ?? 0) + 1
          now.set(partition.name, times)
          if (times % oftenLater === 0) log.warn({ partition: partition.name, times }, 'retention.waiting')
        }
        if (became === 'dropped') log.info({ partition: partition.name }, 'retention.dropped')
        if (typeof became !== 'string')
          log.warn({ partition: partition.name, ...became }, 'retention.blocked')
      }
      laters = now
      // Ordering keys may need many turns. A drop that had to wait is tried once in `laterMs`.
      dropAt = performance.now() + laterMs
    }
    const keys = await removeOrderingKeys(sql, batch, afterKey)
    afterKey = keys.next
    const isMore = await removeOldOperations(sql, days, batch)
    if (after !== null || keys.next !== null || isMore) return 100
    return laters.size > 0 ? laterMs : retentionMs
  }
}
