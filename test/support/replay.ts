import type { Test } from 'tap'
import { explainChange, recordChanges, type Change } from '../../model/replay.ts'
import type { Sql } from '../../src/db/pool.ts'

/** Records each change of a delivery from now on. The result checks that the table of moves explains each of them. */
export async function recordHistory(sql: Sql): Promise<(t: Test) => Promise<void>> {
  await sql.unsafe(recordChanges)
  return async t => {
    const changes = await sql<Change[]>`select was, "is" from delivery_change order by nth`
    t.same(
      changes.filter(change => explainChange(change) === undefined),
      [],
      `each of ${changes.length} changes is a move of the table`
    )
  }
}
