import type { Logger } from '../runtime/logger.ts'
import { sleep } from '../runtime/repeat.ts'
import path from 'node:path'
import { readOrMakeSecret, runPostmaster, stopPostmaster, urlOf, type Postmaster } from './postmaster.ts'
import { connect, DatabaseError, isInfrastructure, type PostgresClient } from '../db/pool.ts'
import { isAlive, isPostmaster } from './pidfile.ts'

interface EmbeddedOptions {
  dataDir: string
  log?: Pick<Logger, 'info'>
  /** Its abort ends a start that is under way. */
  signal?: AbortSignal
}

export interface Embedded {
  url: string
  pid: number
  port: number
  /** Resolves when PostgreSQL has ended without `stop`, such as by kill -9. */
  lost: Promise<void>
  /** Ends PostgreSQL. Close your pools first. */
  stop(): Promise<void>
}

/** The advisory lock of its holder. Any fixed number does. */
export const holderLock = 1_095_976_779

/**
 * A real PostgreSQL under `dataDir`, for this process alone. Its holder has an advisory lock in that PostgreSQL, on a
 * connection that ends with the process: after kill -9 nothing stale is left, and the next start takes the orphan over.
 */
export async function startEmbedded({ dataDir, log, signal }: EmbeddedOptions): Promise<Embedded> {
  const began = Date.now()
  for (;;) {
    const postmaster = await runPostmaster({
      dataDir,
      ...(log && { log }),
      ...(signal && { signal }),
      onRecovering: ms => log?.info({ dataDir, ms }, 'postgres.recovering')
    })
    const release = await hold(postmaster, dataDir)
    if (!release) continue // its holder is stopping it
    log?.info(
      { pid: postmaster.pid, port: postmaster.port, adopted: postmaster.adopted, ms: Date.now() - began },
      'postgres.ready'
    )
    return running(postmaster, dataDir, release)
  }
}

/** The master key of an embedded Ackbox: made once, readable by its owner alone. */
export function embeddedSecret(dataDir: string): string {
  return readOrMakeSecret(path.join(path.resolve(dataDir), 'secret'))
}

function running(postmaster: Postmaster, dataDir: string, release: () => Promise<void>): Embedded {
  const { pid, port } = postmaster
  // Last resort for an end without stop(), such as an uncaught exception: do not leave it behind.
  const onExit = () => {
    try {
      process.kill(pid, 'SIGINT')
    } catch {} // it has ended already
  }
  process.once('exit', onExit)
  let watch: NodeJS.Timeout | undefined
  const lost = new Promise<void>(resolve => {
    watch = setInterval(() => {
      if (isPostmaster(pid, path.resolve(dataDir, 'postgres'))) return
      clearInterval(watch)
      resolve()
    }, 1_000).unref()
  })
  let stopped: Promise<void> | undefined
  return {
    url: urlOf(postmaster),
    pid,
    port,
    lost,
    stop: () =>
      (stopped ??= (async () => {
        clearInterval(watch)
        const stopping = stopPostmaster({ pid, dataDir })
        await release() // not before the signal: no process may adopt a PostgreSQL that is about to end
        await stopping
        process.off('exit', onExit)
      })())
  }
}

/** Takes the lock and keeps it. Undefined: this PostgreSQL is ending. Throws when another process has it. */
async function hold(postmaster: Postmaster, dataDir: string): Promise<(() => Promise<void>) | undefined> {
  let released = false
  const sql = connect(urlOf(postmaster), {
    max: 1,
    max_lifetime: null,
    fetch_types: false,
    connect_timeout: 5,
    backoff: () => 0.1,
    // A killed backend loses the lock: take it again before another process does.
    onclose: () => {
      if (!released) setTimeout(() => void take().catch(() => {}), 50)
    },
    connection: { application_name: `ackbox holder ${process.pid}` }
  })
  const take = async () => {
    const [row] = await sql<{ taken: boolean }[]>`select pg_try_advisory_lock(${holderLock}) as taken`
    return row?.taken === true
  }
  const release = async () => {
    released = true
    await sql.end({ timeout: 1 })
  }
  try {
    for (const until = Date.now() + 5_000; ;) {
      if (await take()) return release
      const holder = await findHolder(sql)
      // A process that was just killed may still have its backend for a moment.
      if ((holder && isAlive(holder)) || Date.now() > until)
        throw new DatabaseError(heldBy(holder, postmaster, dataDir))
      await sleep(25)
    }
  } catch (err) {
    await release()
    if (isInfrastructure(err)) return undefined
    throw err
  }
}

async function findHolder(sql: PostgresClient): Promise<number | undefined> {
  const [row] = await sql<{ name: string }[]>`
    select application_name as name from pg_locks join pg_stat_activity using (pid)
    where locktype = 'advisory' and classid = 0 and objid = ${holderLock} and granted limit 1`
  return row && (Number(/\d+$/.exec(row.name)?.[0]) || undefined)
}

function heldBy(holder: number | undefined, { pid, port }: Postmaster, dataDir: string): string {
  return (
    `${path.resolve(dataDir)} is held by another Ackbox, pid ${holder ?? 'unknown'} ` +
    `(its PostgreSQL: pid ${pid}, port ${port}). Stop that one first, or set DATA_DIR to another folder.`
  )
}
