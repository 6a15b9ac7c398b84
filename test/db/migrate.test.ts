import postgres from 'postgres'
import t from 'tap'
import { migrate, pendingMigrations } from '../../src/db/migrate.ts'
import { checkServer, isInfrastructure, openDb } from '../../src/db/open.ts'
import { emptyDb, testDb } from '../support/postgres.ts'

t.test('five processes that start at once on an empty database apply each migration once', async t => {
  const url = await emptyDb(t)
  const all = await pendingMigrations(url)
  t.equal(all[0], '0000_foundation')
  const applied = await Promise.all(Array.from({ length: 5 }, () => migrate(url)))
  t.same(applied.filter(names => names.length > 0), [all])
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
  const half = migrate(url).then(() => 'done', (err: unknown) => err)
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

t.test('a server that cannot keep the promise is refused with what to do', async t => {
  const { url, sql } = await testDb(t)
  t.match(await checkServer(sql), { version: /^\d+/ })
  const readonly = openDb(`${url}?default_transaction_read_only=on`, { max: 1 })
  await t.rejects(checkServer(readonly), { name: 'DatabaseError', message: /read-only/ })
  await readonly.end()
  await sql`select 1`
  const name = new URL(url).pathname.slice(1)
  await sql.unsafe(`create database ${name}_latin encoding 'LATIN1' template template0 locale 'C'`)
  const latin = openDb(`${url}_latin`, { max: 1 })
  await t.rejects(checkServer(latin), { name: 'DatabaseError', message: /LATIN1.*UTF8/ })
  await latin.end()
  await sql.unsafe(`drop database ${name}_latin`)
})

t.test('the hot pool commits synchronously and plans for young tables, whatever the server says', async t => {
  const { sql } = await testDb(t)
  const [row] = await sql`
    select current_setting('synchronous_commit') as sync, current_setting('enable_seqscan') as seqscan,
           current_setting('jit') as jit, current_setting('statement_timeout') as timeout,
           9007199254740991::bigint as big, now() as now, array[1::bigint] as bigs`
  t.match(row, { sync: 'on', seqscan: 'off', jit: 'off', timeout: '10s', big: 9007199254740991, now: Date, bigs: [1] })
})

t.test('the database away or full is told from a statement that is wrong', async t => {
  const { sql } = await testDb(t)
  const error = async (query: PromiseLike<unknown>) => await query.then(() => undefined, (err: unknown) => err)
  t.notOk(isInfrastructure(await error(sql`select 1 / 0`)))
  t.notOk(isInfrastructure(await error(sql`select nonsense`)))
  t.notOk(isInfrastructure(new TypeError('ours')))
  t.notOk(isInfrastructure(undefined))
  t.ok(isInfrastructure(await error(sql`select pg_terminate_backend(pg_backend_pid())`)))
  const nobody = openDb('postgres://x:x@127.0.0.1:1/x', { max: 1 })
  t.ok(isInfrastructure(await error(nobody`select 1`)))
  await nobody.end()
  t.ok(isInfrastructure(await error(nobody`select 1`)), 'a closed pool')
  const wrong = openDb('postgres://x:x@no.such.host.invalid/x', { max: 1 })
  t.ok(isInfrastructure(await error(wrong`select 1`)))
  await wrong.end()
})
