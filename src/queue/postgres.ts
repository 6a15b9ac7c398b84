import type { Logger } from '../runtime/logger.ts'
import { runMigrations, type PgPool } from 'bullmq'
import pg from 'pg'
import { waitAtMost } from '../runtime/with-timeout.ts'

const schema = 'bullmq'
/** How long a clean end may take: the server may be in a black hole. */
const closeMs = 2000

/**
 * A separate pool: BullMQ uses `pg`, and each worker keeps one connection for LISTEN. Jobs are not the
 * truth, so their commits need not wait for the disk. `url` is asked at each connect.
 */
export async function openPostgres(url: () => string, queues: number, log: Logger) {
  const pool = new pg.Pool({
    // The primary may be another host by the next connection.
    Client: class extends pg.Client {
      constructor(config: pg.ClientConfig = {}) {
        super({ ...config, connectionString: url() })
      }
    },
    application_name: 'ackbox-queue',
    options: `-c search_path=${schema} -c synchronous_commit=off -c jit=off -c statement_timeout=5000`,
    max: queues + 4,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    connectionTimeoutMillis: 2000,
    query_timeout: 5000,
    idleTimeoutMillis: 60_000,
    allowExitOnIdle: false
  })
  // Every queue and every worker of BullMQ listens for its errors: with six downstreams Node would cry leak.
  pool.setMaxListeners(0)
  let ending: Promise<void> | undefined
  // A broken idle connection emits its error here. Without a listener it would end the process.
  pool.on('error', error => log.debug({ reason: error.message }, 'queue.connection_lost'))

  try {
    await migrate(url())
  } catch (error) {
    await pool.end()
    throw error
  }

  return {
    // BullMQ has its own type for pools, which pg's overloads do not quite match.
    forBullmq: pool as unknown as PgPool,
    // Only a safety net: NOTIFY wakes a worker at once. This finds jobs that a lost connection missed.
    blockSeconds: 5,
    ping: async () => {
      // A standby answers too, but takes no jobs.
      const { rows } = await pool.query<{ in_recovery: boolean }>('select pg_is_in_recovery() as in_recovery')
      if (rows[0]?.in_recovery) throw new Error('this PostgreSQL is a standby')
    },
    close() {
      ending ??= waitAtMost(closeMs, pool.end())
      return ending
    }
  }
}

async function migrate(url: string) {
  // No statement timeout here: another process may hold BullMQ's own migration lock for a while.
  const client = new pg.Client({
    connectionString: url,
    application_name: 'ackbox-queue-migrate',
    connectionTimeoutMillis: 10_000
  })
  client.on('error', () => {}) // the running query rejects as well
  try {
    await client.connect()
    await runMigrations(client, schema)
  } finally {
    await client.end().catch(() => {})
  }
}
