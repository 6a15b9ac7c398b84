import type { Logger } from '../runtime/logger.ts'
import { Socket } from 'node:net'
import { runMigrations, type PgPool } from 'bullmq'
import pg from 'pg'
import { waitAtMost } from '../runtime/with-timeout.ts'

const schema = 'bullmq'
/** The time limit of a clean end: the server may not answer at all. */
const closeMs = 2000

/** The database of BullMQ's jobs. With several hosts the primary may move. */
export interface QueueDatabase {
  /** The URL of the primary as it is known now. */
  url: () => string
  /** `listener` is called at each move. Returns the function that removes it. */
  onMove: (listener: () => void) => () => void
}

/**
 * A separate pool: BullMQ uses `pg`, and each worker keeps one connection for LISTEN. Jobs are not the
 * truth, so their commits need not wait for the disk.
 */
export async function openPostgres({ url, onMove }: QueueDatabase, queues: number, log: Logger) {
  const sockets = new Map<Socket, string>()
  const pool = new pg.Pool({
    Client: class extends pg.Client {
      constructor(config: pg.ClientConfig = {}) {
        const connectionString = url()
        super({ ...config, connectionString, stream: () => open(connectionString) })
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
  // Also connections that were being opened during the move: a read-only former primary answers workers "no job" for ever.
  const stopFollowing = onMove(() => {
    for (const [socket, to] of sockets) if (to !== url()) socket.destroy()
  })
  function open(to: string) {
    const socket = new Socket()
    sockets.set(socket, to)
    return socket.once('close', () => sockets.delete(socket))
  }
  // Every queue and worker of BullMQ adds an error listener: with six downstreams Node would warn of a leak.
  pool.setMaxListeners(0)
  let ending: Promise<void> | undefined
  // A broken idle connection emits its error here. Without a listener it would end the process.
  pool.on('error', error => log.debug({ reason: error.message }, 'queue.connection_lost'))

  try {
    await migrate(url())
  } catch (error) {
    stopFollowing()
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
      stopFollowing()
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
