import { spawn } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import postgres from 'postgres'
import t from 'tap'
import { migrate, pendingMigrations } from '../../src/db/migrate.ts'
import { isInfrastructure, openDb } from '../../src/db/pool.ts'
import { emptyDb } from '../support/postgres.ts'
import { until } from '../support/until.ts'

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

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
  // This open transaction takes the name of the third table. The migration waits for its lock, and is killed there.
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

t.test('the command names its migrations, and the session that it waits for', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  // Another migration would hold this lock.
  const [holder] = await sql<{ pid: number }[]>`
    select pg_backend_pid() as pid, pg_advisory_lock(4162695513) is null as taken`
  const child = spawn(process.execPath, [program, 'migrate'], {
    env: { PATH: process.env['PATH'], DATABASE_URL: url }
  })
  let [out, err] = ['', '']
  child.stdout.on('data', (bytes: Buffer) => (out += String(bytes)))
  child.stderr.on('data', (bytes: Buffer) => (err += String(bytes)))
  await until('it says what it waits for', () => err.includes(`waiting for pid ${holder?.pid} of `))
  t.match(err, /^to apply: 0000_foundation, /)
  t.match(err, 'select pg_backend_pid() as pid, pg_advisory_lock')
  const exited = once(child, 'exit')
  await sql.end()
  t.same(await exited, [0, null])
  t.match(out, /^applied 0000_foundation, /)
})
