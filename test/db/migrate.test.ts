import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import postgres from 'postgres'
import t from 'tap'
import { migrate, pendingMigrations, unknownMigrations } from '../../src/db/migrate.ts'
import { isInfrastructure, openDb } from '../../src/db/pool.ts'
import { emptyDb } from '../support/postgres.ts'
import { until } from '../support/until.ts'
import { nextMigrations } from '../long/upgrade/next.ts'

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
  const [row] = await sql<{ n: number }[]>`select count(*) as n from drizzle.__ackbox_migrations`
  t.equal(row?.n, all.length)
  await sql.end()
})

t.test('migrate --dry-run names what is missing with 1, and changes nothing', async t => {
  const url = await emptyDb(t)
  const dryRun = () =>
    spawnSync(process.execPath, [program, 'migrate', '--dry-run'], {
      env: { PATH: process.env['PATH'], DATABASE_URL: url },
      encoding: 'utf8'
    })
  const all = await pendingMigrations(url)
  t.match(dryRun(), { status: 1, stdout: `to apply: ${all.join(', ')}\n`, stderr: '' })
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  t.same(await sql`select nspname from pg_namespace where nspname in ('drizzle', 'ackbox_api')`, [])
  t.same(await migrate(url), all)
  t.match(dryRun(), { status: 0, stdout: 'nothing to do: all migrations are applied\n', stderr: '' })
})

/** What drizzle makes by default, with a migration of another program that is newer than all of ours. */
const sharedTable = `
  create schema if not exists drizzle;
  create table drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint);
  insert into drizzle.__drizzle_migrations (hash, created_at) values ('of the shop', 4102444800000)`

t.test('the migrations of another program in the same database hide none of ours', async t => {
  const url = await emptyDb(t)
  const all = await pendingMigrations(url)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  await sql.unsafe(sharedTable)
  t.same(await pendingMigrations(url), all)
  t.equal(await unknownMigrations(url), 0)
  t.same(await migrate(url), all)
  const rows = await sql<{ hash: string }[]>`select hash from drizzle.__drizzle_migrations`
  t.same(rows, [{ hash: 'of the shop' }], 'and ours do not hide theirs')
})

t.test('a database of 1.0.0 keeps its migrations, beside those of another program', async t => {
  const url = await emptyDb(t)
  const all = await migrate(url)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  await sql.unsafe(`${sharedTable};
    insert into drizzle.__drizzle_migrations (hash, created_at) select hash, created_at from drizzle.__ackbox_migrations;
    drop table drizzle.__ackbox_migrations`)
  t.same(await pendingMigrations(url), [], 'a process starts')
  t.equal(await unknownMigrations(url), 0)
  const from = nextMigrations(t)
  const applied = await Promise.all([0, 1, 2].map(() => migrate(url, undefined, from)))
  t.same(applied.flat(), ['9999_next'])
  t.equal(await unknownMigrations(url), 1)
  const [rows] = await sql`
    select (select count(*)::int from drizzle.__ackbox_migrations) as own,
      (select count(*)::int from drizzle.__drizzle_migrations) as shared`
  t.same(rows, { own: all.length + 1, shared: all.length + 1 }, 'an older version finds what it left')
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

t.test('the command tells why a statement failed, and not only which', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  await sql`create table attempt (x int)`
  await sql.end()
  const env = { PATH: process.env['PATH'], DATABASE_URL: url }
  const { stderr, status } = spawnSync(process.execPath, [program, 'migrate'], { env, encoding: 'utf8' })
  t.equal(status, 1)
  t.match(
    stderr,
    /^ackbox: Migration failed: relation "attempt" already exists\. Fix the cause and run it again\.$/m
  )
})

t.test('a migration waits for its locks, whatever limits the database sets for others', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  const [limits] = await sql<{ names: string[] }[]>`
    select array_agg(name) as names from pg_settings
    where name in ('statement_timeout', 'lock_timeout', 'transaction_timeout')`
  const blocker = await sql.reserve()
  await blocker`begin`
  await blocker`create table attempt (x int)`
  const name = new URL(url).pathname.slice(1)
  for (const limit of limits?.names ?? []) await sql.unsafe(`alter database "${name}" set ${limit} = '200ms'`)
  let hasFailed = false
  const done = migrate(url).then(
    names => names[0],
    (err: unknown) => {
      hasFailed = true
      return err
    }
  )
  await until('it has waited longer than that, or failed', async () => {
    const rows = await sql`
      select from pg_stat_activity where datname = current_database() and application_name = 'ackbox migrate'
        and wait_event_type = 'Lock' and clock_timestamp() - query_start > interval '500 ms'`
    return hasFailed || rows.length > 0
  })
  await blocker`rollback`
  blocker.release()
  t.equal(await done, '0000_foundation')
  await sql.end()
})

t.test('a migration that deadlocks with the statements of a service is tried again', async t => {
  const url = await emptyDb(t)
  await migrate(url)
  const sql = postgres(url, { max: 2, onnotice: () => {} })
  // The migration alters delivery, then task. PostgreSQL ends the session that sees the deadlock first.
  await sql.unsafe(`alter database "${new URL(url).pathname.slice(1)}" set deadlock_timeout = '2s'`)
  const service = await sql.reserve()
  await service`set deadlock_timeout = '10min'`
  await service`begin`
  await service`lock table task in access share mode`
  const done = migrate(url, undefined, nextMigrations(t))
  await until('the migration waits for task', async () => {
    const rows = await sql`
      select from pg_stat_activity where datname = current_database() and application_name = 'ackbox migrate'
        and wait_event_type = 'Lock' and query like '%alter table "task"%'`
    return rows.length > 0
  })
  await service`select from delivery`
  await service`commit`
  service.release()
  t.same(await done, ['9999_next'])
  await sql.end()
})

t.test('the command names its migrations, and the session that it waits for', async t => {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  // Another migration would hold this lock.
  const [holder] = await sql<{ pid: number }[]>`
    select pg_backend_pid() as pid, pg_advisory_lock(4162695513) is null as taken, 'canary' as text`
  const child = spawn(process.execPath, [program, 'migrate'], {
    env: { PATH: process.env['PATH'], DATABASE_URL: url }
  })
  let [out, err] = ['', '']
  child.stdout.on('data', (bytes: Buffer) => (out += String(bytes)))
  child.stderr.on('data', (bytes: Buffer) => (err += String(bytes)))
  await until('it says what it waits for', () => err.includes(`waiting for pid ${holder?.pid} of `))
  t.match(err, 'pg_advisory_lock')
  t.notMatch(err, 'canary', 'no text of the query, which may be data or a password')
  t.match(err, /^to apply: 0000_foundation, /)
  t.match(err, 'select pg_backend_pid() as pid, pg_advisory_lock')
  const exited = once(child, 'exit')
  await sql.end()
  t.same(await exited, [0, null])
  t.match(out, /^applied 0000_foundation, /)
})
