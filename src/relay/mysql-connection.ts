// Connections to a producer's MySQL or MariaDB.
import type { Socket } from 'node:net'
import type { Connection as CallbackConnection } from 'mysql2'
import type * as mysql from 'mysql2/promise'
import type { Connection, Pool, RowDataPacket } from 'mysql2/promise'
import { isMissingPackage } from '../runtime/errors.ts'
import { withTimeout } from '../runtime/with-timeout.ts'
import { relaySession, wishes } from './mysql-session.ts'
import { RelayError } from './source.ts'

export async function mysqlDriver(): Promise<typeof mysql> {
  try {
    return await import('mysql2/promise')
  } catch (err) {
    if (!isMissingPackage(err)) throw err
    throw new RelayError('MySQL and MariaDB need the package mysql2: npm install mysql2', {
      cause: err
    })
  }
}

/** The server ends a session that is idle for longer than `idleMs`, also inside of a transaction. */
export async function mysqlPool(url: string, connections: number, idleMs: number): Promise<Pool> {
  const pool = (await mysqlDriver()).createPool({
    uri: url,
    connectionLimit: connections,
    connectTimeout: 5_000,
    supportBigNumbers: true,
    bigNumberStrings: true,
    // Bodies keep exactly the text that the producer wrote.
    jsonStrings: true,
    enableKeepAlive: true,
    timezone: 'Z'
  })
  pool.on('connection', connection => {
    const session = connection as unknown as CallbackConnection
    // Without one of them, a statement could mean something else.
    for (const statement of relaySession(idleMs))
      session.query(statement, err => {
        if (err) session.destroy()
      })
    for (const statement of wishes) session.query(statement, () => {})
  })
  return pool
}

/** Runs a statement and returns its rows. */
export type RunQuery = <T>(statement: string, values?: unknown[]) => Promise<T[]>

/** A connection that does not answer within `silenceMs` is destroyed. */
export async function onConnection<T>(
  pool: Pool,
  silenceMs: number | undefined,
  work: (ask: RunQuery) => Promise<T>
): Promise<T> {
  const connection = await pool.getConnection()
  const ask: RunQuery = async <Found>(statement: string, values: unknown[] = []): Promise<Found[]> => {
    const answer = connection.query<RowDataPacket[]>(statement, values)
    const [rows] = await (silenceMs === undefined ? answer : answerWithin(silenceMs, answer))
    return rows as Found[]
  }
  try {
    const result = await work(ask)
    connection.release()
    return result
  } catch (err) {
    // The end of the connection rolls back and releases the row locks, in any state of the connection.
    connection.destroy()
    // The driver waits until the server closes its side too, which a host that vanished never does.
    if (err instanceof Silence) socketOf(connection).destroy()
    throw err
  }
}

export const socketOf = (connection: Connection): Socket =>
  (connection as unknown as { connection: { stream: Socket } }).connection.stream

class Silence extends Error {
  readonly code = 'ETIMEDOUT'
}

/** Not the driver's own timeout: that begins only when the statements before it on the connection have ended. */
export const answerWithin = <T>(ms: number, answer: Promise<T>): Promise<T> =>
  withTimeout(answer, ms, () => {
    throw new Silence(`the database has not answered for ${ms / 1_000} s`)
  })

export const transaction = <T>(
  pool: Pool,
  silenceMs: number | undefined,
  work: (ask: RunQuery) => Promise<T>
): Promise<T> =>
  onConnection(pool, silenceMs, async ask => {
    await ask('start transaction')
    const result = await work(ask)
    await ask('commit')
    return result
  })
