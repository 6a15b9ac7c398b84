import { mayBeOfRow } from '../db/batch.ts'
import { findOutbox, readOutbox, readOutboxRows, type OutboxLook, type OutboxRead } from '../db/outbox.ts'
import { rowFaults } from '../db/row-faults.ts'
import { inHalves } from '../runtime/halves.ts'
import { rejectUnreadable, type AcceptRowsDeps } from './accept-rows.ts'

/** `fault`: the error of a row that could be neither read nor rejected. It is still in the outbox. */
export type Look = OutboxRead & { fault?: unknown }

/** No further part of a look is read after this time. The next look begins at the first row again. */
const longestMs = 30_000

/** Looks at the rows of the outbox. A row that cannot be read is rejected, and the rows beside it are read. */
export function outboxLooks(deps: AcceptRowsDeps): { read(look: OutboxLook): Promise<Look> } {
  const { sql, log } = deps
  const faults = rowFaults<number>()

  /** True: the row is rejected. */
  async function setAside(id: number, err: unknown): Promise<boolean> {
    if (!faults.isFinal(id, err)) return false
    try {
      await rejectUnreadable(deps, id, err)
      return true
    } catch (cause) {
      if (!mayBeOfRow(cause)) throw cause
      log.error({ err: cause, row: id }, 'outbox.unmovable')
      return false
    }
  }

  async function readInHalves(look: OutboxLook): Promise<Look> {
    const found = await findOutbox(sql, look)
    const end = performance.now() + longestMs
    const stuckShards = new Set<number>()
    let fault: unknown
    const rows = await inHalves(found, {
      async work(part) {
        if (performance.now() >= end) return []
        const read = await readOutboxRows(
          sql,
          part.map(({ id }) => id)
        )
        faults.forget(read.map(({ id }) => id))
        return read
      },
      mayBeOfOne: mayBeOfRow,
      async setAside({ id, shard }, err) {
        if (await setAside(id, err)) return
        fault = err
        // Its key may be in later rows, which must not overtake it while it is tried.
        if (shard !== null && faults.isTried(id)) stuckShards.add(shard)
      }
    })
    return {
      rows: rows.filter(({ shard }) => shard === null || !stuckShards.has(shard)),
      isFull: rows.length > 0,
      // Of several snapshots: nothing is known to have ended.
      endedBelow: 0,
      begunBelow: Infinity,
      fault
    }
  }

  return {
    async read(look) {
      try {
        const read = await readOutbox(sql, look)
        faults.forget(read.rows.map(({ id }) => id))
        return read
      } catch (err) {
        if (!mayBeOfRow(err)) throw err
        log.warn({ err }, 'outbox.look_failed')
        return await readInHalves(look)
      }
    }
  }
}
