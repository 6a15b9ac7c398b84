import { isTimeout, refusesItem } from './batch.ts'

/** A row whose read ends by a limit of time or memory is read so often: the load of the database may have been the cause. */
const mostTries = 3

/** Decides when the error of a row that was read alone is final. */
export interface RowFaults<Id> {
  /** `isOfLimit`: the error is that of a limit, or of the client. */
  isFinal(id: Id, err: unknown, isOfLimit?: boolean): boolean
  /** The row has failed, and is tried again. */
  isTried(id: Id): boolean
}

export function rowFaults<Id>(): RowFaults<Id> {
  const tries = new Map<Id, number>()
  return {
    isFinal(id, err, isOfLimit = isTimeout(err) || !refusesItem(err)) {
      const tried = (tries.get(id) ?? 0) + 1
      tries.delete(id)
      if (!isOfLimit || tried >= mostTries) return true
      tries.set(id, tried)
      return false
    },
    isTried: id => tries.has(id)
  }
}
