import type { Logger } from '../runtime/logger.ts'
import { Socket } from 'node:net'
import {
  assertSchemaCompatibility,
  LATEST_SCHEMA_VERSION,
  runMigrations,
  SchemaMigrationRequiredError,
  type PgPool
} from 'bullmq'
import pg from 'pg'
import { QueueServerError } from './redis.ts'
import { asOptions, ownSessionSettings } from '../runtime/session-settings.ts'
import { waitAtMost } from '../runtime/with-timeout.ts'

const schema = 'bullmq'
/** The message of pg for a query without an answer in `query_timeout`. The server itself cancels a slow statement earlier. */
const unanswered = 'Query read timeout'
/** The time limit of a clean end: the server may not answer at all. */
const closeMs = 2000
/** A start waits this long for the locks of a migration. Another process that migrates needs less. */
const lockSeconds = 30

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
        // Between the pool and its user a connection has no listener for a moment. An error then would end the process.
        this.on('error', () => {})
      }
    },
    application_name: 'ackbox-queue',
    options: asOptions({
      ...ownSessionSettings,
      search_path: schema,
      synchronous_commit: 'off',
      jit: 'off',
      statement_timeout: '5000'
    }),
    max: queues + 4,
    keepAlive: true,
    keepAliveInitialDelayMillis: 10_000,
    connectionTimeoutMillis: 2000,
    // Longer than statement_timeout, so that only a connection without an answer reaches it.
    query_timeout: 6000,
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
    /** Opens a consumer with the listener for its errors. */
    consumer<Consumer extends { close: () => Promise<void> }>(
      onError: (error: Error) => void,
      open: (listener: (error: Error) => void) => Consumer
    ): Consumer {
      const before = new Set(pool.listeners('error'))
      const consumer = open(error => {
        // BullMQ would send each later LISTEN on the connection that gave no answer to one: the worker got no job.
        if (error.message === unanswered) for (const socket of sockets.keys()) socket.destroy()
        onError(error)
      })
      // BullMQ leaves a listener at its pool, and with it all of the consumer.
      const left = pool.listeners('error').filter(listener => !before.has(listener))
      const close = (): Promise<void> => {
        for (const listener of left) pool.off('error', listener as () => void)
        return consumer.close()
      }
      return { ...consumer, close }
    },
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
  const client = new pg.Client({
    connectionString: url,
    application_name: 'ackbox-queue-migrate',
    options: asOptions({ ...ownSessionSettings, search_path: schema, statement_timeout: '0' }),
    connectionTimeoutMillis: 10_000
  })
  client.on('error', () => {}) // the running query rejects as well
  try {
    await client.connect()
    // The locks of a migration wait for every reader of the tables, such as pg_dump, and every later reader waits behind them.
    await client.query(`set lock_timeout = '${lockSeconds}s'`)
    if (await isCurrent(client)) return
    await runMigrations(client, schema)
  } catch (error) {
    if ((error as { code?: unknown }).code !== '55P03') throw error
    throw new QueueServerError(
      `Other sessions have locked the tables of the queue (schema ${schema}) for ${lockSeconds} s: ` +
        'start again when they have ended. pg_dump, and a process that waits for it to migrate the tables, are such sessions'
    )
  } finally {
    await client.end().catch(() => {})
  }
}

/** One read: it does not wait for pg_dump. */
async function isCurrent(client: pg.Client): Promise<boolean> {
  try {
    return (await assertSchemaCompatibility(client, schema)) >= LATEST_SCHEMA_VERSION
  } catch (error) {
    if (error instanceof SchemaMigrationRequiredError) return false
    throw error
  }
}
