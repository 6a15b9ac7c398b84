import { hasDelivery } from '../db/deliveries.ts'
import type { Sql } from '../db/pool.ts'
import { isPowerOfTen, type Logger } from '../runtime/logger.ts'
import type { ClaimedBatch } from './load.ts'

/** The wait between questions. Most jobs without a delivery to send are only late. */
const askEveryMs = 10_000

const remedy = 'does another Ackbox use this Redis with the same REDIS_PREFIX?'

/** Logs that a job, of which nothing was to be sent, has only tasks that this database never had. Retention removes no task within days of its last job. */
export function unknownJobs(
  { sql, log }: { sql: Sql; log: Pick<Logger, 'warn'> },
  clock: () => number = performance.now.bind(performance)
): (job: ClaimedBatch) => Promise<void> {
  let askAt = -Infinity
  let times = 0
  return async ({ downstream, deliveries }) => {
    if (clock() < askAt) return
    askAt = clock() + askEveryMs
    const ids = deliveries.map(one => one.taskId)
    const isKnown = await hasDelivery(sql, ids).catch((err: unknown) => {
      askAt = -Infinity
      throw err
    })
    if (!isKnown && isPowerOfTen(++times)) log.warn({ downstream, remedy }, 'job.unknown')
  }
}
