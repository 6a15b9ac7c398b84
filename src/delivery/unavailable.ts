import type { Cluster } from './cluster.ts'
import { isAway, isCollision } from '../db/batch.ts'
import { isInfrastructure, UnconfirmedCommit } from '../db/pool.ts'
import { Unavailable } from '../runtime/errors.ts'
import { withTimeout } from '../runtime/with-timeout.ts'

/** How long a caller waits for the database before it gets a 503. The statement may still be committed. */
const unavailableAfterMs = 2_000

/**
 * The answer of PostgreSQL, or Unavailable when it cannot be reached, or does not answer within 2 s. The database is away then, unless the
 * statement changes rows of one task, `mayBeLocked`: somebody may have locked them, and `refresh` tells whether the database is away.
 */
export async function orUnavailable<T>(
  cluster: Pick<Cluster, 'setDatabaseAway'>,
  statement: Promise<T>,
  { mayBeLocked = false } = {}
): Promise<T> {
  try {
    return await withTimeout(statement, unavailableAfterMs, () => {
      if (!mayBeLocked) cluster.setDatabaseAway()
      throw new Unavailable('the database takes too long')
    })
  } catch (err) {
    if (isCollision(err))
      throw new Unavailable('another call changes the same rows: send it again', 1, { cause: err })
    if (err instanceof UnconfirmedCommit)
      throw new Unavailable('no standby has confirmed the commit: send it again', 1, { cause: err })
    if (!isInfrastructure(err)) throw err
    if (isAway(err)) cluster.setDatabaseAway()
    throw new Unavailable('the database cannot be reached', 1, { cause: err })
  }
}
