import postgres from 'postgres'
import t from 'tap'
import { migrate, pendingMigrations } from '../../src/db/migrate.ts'
import { isInfrastructure, openDb } from '../../src/db/pool.ts'
import { emptyDb } from '../support/postgres.ts'

t.test('five processes that start at once on an empty database apply each migration once', async t => {
  const url = await emptyDb(t)
  const all = await pendingMigrations(url)
  t.equal(all[0], '0000_foundation')
  const applied = await Promise.all(Array.from({ length: 5 }, () => migrate(url)))
  t.same(
    applied.filter(names => names.length > 0),
    [all]
  )
  t.same(await pendingMigrations(url), [])
  const sql = openDb(url, { max: 1 })
  const [row] = await sql<{ n: number }[]>`select count(*) as n from drizzle.__drizzle_migrations`
  t.equal(row?.n, all.length)
  await sql.end()
})

t.test('a migration that is killed half-way leaves nothing behind and can be run again', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  // The third table cannot be made while this name is taken: the migration waits for our lock, and is killed there.
  const blocker = await sql.reserve()
  await blocker`begin`
  await blocker`create table attempt (x int)`
  const half = migrate(url).then(
    () => 'done',
    (err: unknown) => err
  )
  for (let killed = false; !killed;) {
    const rows = await sql`
      select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name = 'ackbox migrate' and wait_event_type = 'Lock'`
    killed = rows.length > 0
  }
  t.ok(isInfrastructure(await half), 'it says that the connection was lost')
  await blocker`rollback`
  blocker.release()
  const [row] = await sql`select to_regclass('alarm') as alarm`
  t.equal(row?.['alarm'], null)
  t.same(await migrate(url), await pendingMigrations(await emptyDb(t)))
  await sql.end()
})
