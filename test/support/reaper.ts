// node reaper.js <dataDir> <pid>: stops the tests' PostgreSQL once it has been unused for some seconds. Each test process
// starts a reaper; the first to take the lock does the work, the others exit.
import postgres from 'postgres'
import { runPostmaster, stopPostmaster, urlOf } from '../../src/embedded/postmaster.ts'
import { isRunning, isUsed } from './presence.ts'

const [dataDir, pid] = process.argv.slice(2)
const lock = 77_002
const quietMs = 15_000

if (dataDir && pid) await reap(dataDir, Number(pid))

async function reap(dataDir: string, pid: number): Promise<void> {
  const postmaster = await runPostmaster({ dataDir })
  if (postmaster.pid !== pid) return
  const sql = postgres(urlOf(postmaster), {
    max: 1,
    max_lifetime: null,
    fetch_types: false,
    onnotice: () => {},
    connection: { application_name: 'ackbox reaper' }
  })
  try {
    const [row] = await sql<{ taken: boolean }[]>`select pg_try_advisory_lock(${lock}) as taken`
    if (!row?.taken) return
    await sql`select pg_advisory_lock(77001)`
    for (const { name } of await leftovers(sql))
      await sql.unsafe(`drop database if exists ${name}`).catch(() => {})
    await sql`select pg_advisory_unlock(77001)`
    for (let quietSince = Date.now(); Date.now() - quietSince < quietMs;) {
      await new Promise(resolve => setTimeout(resolve, 1_000))
      const [others] = await sql<{ n: number }[]>`
        select count(*)::int as n from pg_stat_activity
        where backend_type = 'client backend' and application_name <> 'ackbox reaper'`
      if (isUsed(dataDir) || (others && others.n > 0)) quietSince = Date.now()
    }
    await stopPostmaster({ pid, dataDir })
  } finally {
    await sql.end({ timeout: 1 })
  }
}

/** Databases of tests that were killed. */
async function leftovers(sql: postgres.Sql): Promise<{ name: string }[]> {
  const all = await sql<{ name: string; pid: number }[]>`
    select datname as name, split_part(datname, '_', 2)::int as pid from pg_database where datname like 'test\_%'`
  return all.filter(({ pid }) => !isRunning(pid))
}
