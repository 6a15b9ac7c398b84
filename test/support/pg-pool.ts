import pg from 'pg'

/**
 * A pool of `pg`, as users have it: the documentation of `pg` asks for a listener of its errors. Its `end` does not wait until its
 * connections are closed, and an idle connection still emits its error on the pool after it.
 */
export function pgPool(url: string, max = 12): pg.Pool {
  const pool = new pg.Pool({ connectionString: url, max })
  pool.on('error', () => {})
  return pool
}
