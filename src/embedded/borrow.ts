import { connect, isInfrastructure, type PostgresClient } from '../db/pool.ts'
import { runPostmaster, stopPostmaster, urlOf, type Postmaster, type RunOptions } from './postmaster.ts'
import { holderLock } from './start.ts'

// Any fixed number does. Each command has a shared lock.
const commandsLock = holderLock + 1

export interface Borrowed {
  url: string
  leave(): Promise<void>
}

/**
 * The embedded PostgreSQL for one command. `leave` ends it, unless a service or another command uses it: a service that starts
 * meanwhile takes it over.
 */
export async function borrowEmbedded(
  dataDir: string,
  more: Pick<RunOptions, 'onRecovering' | 'signal'> = {}
): Promise<Borrowed> {
  for (;;) {
    const postmaster = await runPostmaster({ dataDir, ...more })
    const sql = connect(urlOf(postmaster), {
      max: 1,
      max_lifetime: null,
      fetch_types: false,
      connect_timeout: 5
    })
    try {
      await sql`select pg_advisory_lock_shared(${commandsLock})`
      let left: Promise<void> | undefined
      return { url: urlOf(postmaster), leave: () => (left ??= leave(sql, postmaster, dataDir)) }
    } catch (err) {
      await sql.end({ timeout: 1 })
      if (!isInfrastructure(err)) throw err // else another command is stopping it
    }
  }
}

async function leave(sql: PostgresClient, { pid }: Postmaster, dataDir: string): Promise<void> {
  try {
    await sql`select pg_advisory_unlock_shared(${commandsLock})`
    const [row] = await sql<{ isUnused: boolean }[]>`
      select pg_try_advisory_lock(${commandsLock}) and pg_try_advisory_lock(${holderLock}) as "isUnused"`
    // The locks are kept until PostgreSQL is ending: no process may take over one that is about to end.
    const stopping = row?.isUnused ? stopPostmaster({ pid, dataDir }) : undefined
    await sql.end({ timeout: 1 })
    await stopping
  } catch (err) {
    await sql.end({ timeout: 1 })
    if (!isInfrastructure(err)) throw err // else it has ended already
  }
}
