import { isInternal, isTimeout, refusesItem } from './batch.ts'

/** A row whose read may have failed by the load of the database is read so often at least, and for so long. */
const mostTries = 3
const longestMs = 300_000

/** Decides when the error of a row that was read alone is final. */
export interface RowFaults<Id> {
  /** `isPassing`: the error may be that of a limit, of the server or of the client. */
  isFinal(id: Id, err: unknown, isPassing?: boolean): boolean
  /** The row has failed, and is tried again. */
  isTried(id: Id): boolean
  /** These rows have been read. */
  forget(ids: Iterable<Id>): void
}

/** It may be the error of a moment: of the load, of the server or of the client. */
export const mayPass = (err: unknown): boolean => isTimeout(err) || isInternal(err) || !refusesItem(err)

export function rowFaults<Id>(triedMs = longestMs): RowFaults<Id> {
  const failing = new Map<Id, { tries: number; since: number }>()
  return {
    isFinal(id, err, isPassing = mayPass(err)) {
      const now = performance.now()
      const { tries, since } = failing.get(id) ?? { tries: 0, since: now }
      failing.delete(id)
      if (!isPassing || (tries + 1 >= mostTries && now - since >= triedMs)) return true
      failing.set(id, { tries: tries + 1, since })
      return false
    },
    isTried: id => failing.has(id),
    forget(ids) {
      if (failing.size > 0) for (const id of ids) failing.delete(id)
    }
  }
}
