import pg from 'pg'

/**
 * A pool of `pg`, as users have it. Its `end` does not wait until its connections are closed, and an idle connection still emits
 * its error on the pool after it: without these listeners, dropping the database right after `end` would end the process.
 */
export function pgPool(url: string, max = 12): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('connect', client => client.on('error', () => {}))
  pool.on('error', () => {})
  return pool
}
