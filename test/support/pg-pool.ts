import pg from 'pg'

/**
 * A pool of `pg`, as users have it. Its `end` does not wait until its connections are closed, and listens to none of them any more: a
 * database that is dropped right after it would end the process.
 */
export function pgPool(url: string, max = 12): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('connect', client => client.on('error', () => {}))
  return pool
}
