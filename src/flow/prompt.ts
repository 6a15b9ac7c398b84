import { isInfrastructure } from '../db/open.ts'
import { Unavailable } from '../errors.ts'
import type { Surroundings } from './surroundings.ts'

/** The longest a caller waits for the database before it hears 503; what it asked for may be written all the same. */
const promptMs = 2_000

/** What was asked of PostgreSQL, or Unavailable: at once when it is away, within 2 s when it does not answer. */
export async function prompt<T>(surroundings: Pick<Surroundings, 'setAway'>, asked: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let immediate: NodeJS.Immediate | undefined
  const tooLate = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      // Where this process itself stood still the answer lies here unread, and is read before an immediate runs.
      immediate = setImmediate(() => {
        surroundings.setAway()
        reject(new Unavailable('the database takes too long'))
      })
    }, promptMs)
  })
  try {
    return await Promise.race([asked, tooLate])
  } catch (err) {
    if (!isInfrastructure(err)) throw err
    surroundings.setAway()
    throw new Unavailable('the database cannot be reached', 1, { cause: err })
  } finally {
    clearTimeout(timer)
    clearImmediate(immediate)
  }
}
