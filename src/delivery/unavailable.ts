import type { Cluster } from './cluster.ts'
import { isInfrastructure } from '../db/pool.ts'
import { Unavailable } from '../runtime/errors.ts'
import { withTimeout } from '../runtime/with-timeout.ts'

/** How long a caller waits for the database before it gets a 503. The statement may still be committed. */
const unavailableAfterMs = 2_000

/** The answer of PostgreSQL, or Unavailable when it cannot be reached, or does not answer within 2 s. */
export async function orUnavailable<T>(
  cluster: Pick<Cluster, 'setDatabaseAway'>,
  statement: Promise<T>
): Promise<T> {
  try {
    return await withTimeout(statement, unavailableAfterMs, () => {
      cluster.setDatabaseAway()
      throw new Unavailable('the database takes too long')
    })
  } catch (err) {
    if (!isInfrastructure(err)) throw err
    cluster.setDatabaseAway()
    throw new Unavailable('the database cannot be reached', 1, { cause: err })
  }
}
