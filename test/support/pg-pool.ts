import pg from 'pg'

/**
 * A pool of `pg`, as users have it. Its `end` does not wait until its connections are closed, and an idle one hands its error on to the pool
 * even then: a database that is dropped right after it would end the process.
 */
export function pgPool(url: string, max = 12): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('connect', client => client.on('error', () => {}))
  pool.on('error', () => {})
  return pool
}
