// The doctor names the transactions and slots that keep dead rows, on a real PostgreSQL.
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { checks } from '../../src/cli/doctor/checks.ts'
import { lookAtHolders, type HolderFacts } from '../../src/cli/doctor/holders.ts'
import type { Facts } from '../../src/cli/doctor/look.ts'
import { readConfig } from '../../src/service/config.ts'
import { only } from '../support/only.ts'
import { ownPostgres } from '../support/own-postgres.ts'

t.setTimeout(2_400_000)

function session(t: Test, url: string): postgres.Sql {
  const sql = postgres(url, { max: 1, fetch_types: false })
  t.teardown(() => sql.end({ timeout: 1 }))
  return sql
}

/** The finding of the doctor about the holders. */
function said(held: HolderFacts, name: string): unknown {
  const looked = { postgres: { held } } as unknown as Facts
  return checks.find(check => check.name === name)?.look(looked, readConfig({}))
}

t.test('who keeps dead rows is named, with the line that ends it, and nobody else', async t => {
  const { url, sql } = await ownPostgres(t, undefined, { max_prepared_transactions: '2' })
  await sql`create table shop (id int)`
  await sql`create database other`
  const reporter = `reporter_${process.pid}`
  await sql.unsafe(
    `create role ${reporter} login password 'pass'; grant select on all tables in schema public to ${reporter}`
  )
  const other = url.replace(/\/\w+$/, '/other')
  const [dump, idle, elsewhere] = [session(t, url), session(t, url), session(t, other)]
  t.same(await lookAtHolders(sql, 0), { holders: [], hidden: 0 })

  const report = `begin isolation level repeatable read; select 'hush',
      'it''s hush too' from task`
  for (const one of [dump, elsewhere])
    await one.unsafe(report.replace(/task$/, one === dump ? 'task' : 'pg_class'))
  // Read committed: between its statements the transaction has no snapshot, and keeps no dead rows.
  await idle.unsafe('begin; select 1 from task')
  const [{ pid } = { pid: 0 }] = await dump<{ pid: number }[]>`select pg_backend_pid() as pid`
  const facts = await lookAtHolders(sql, 0)
  t.match(facts, { holders: only({ kind: 'transaction', name: String(pid), user: 'postgres' }), hidden: 0 })
  t.equal(facts.holders.length, 1, 'neither one that only stands open, nor one of another database')
  t.same(await lookAtHolders(sql), { holders: [], hidden: 0 }, 'from five minutes on')
  t.match(said(facts, 'PostgreSQL transactions'), {
    level: 'warn',
    found: `dead rows of our tables are kept by pid ${pid} of postgres for 0 min: select pg_backend_pid() as pid`,
    remedy: `select pg_terminate_backend(${pid})`
  })
  await dump.unsafe(`select 'hush', 'it''s hush too',   1\nfrom task`)
  t.match(
    (await lookAtHolders(sql, 0)).holders,
    only({ detail: 'select …, …, 1 from task' }),
    'and nothing that it quotes'
  )

  const guest = url.replace(/\/\/.*@/, `//${reporter}:pass@`)
  const blind = await lookAtHolders(session(t, guest) as never, 0)
  t.equal(blind.holders.length, 0)
  t.ok(blind.hidden >= 2, `${blind.hidden} are hidden from a user without rights`)
  t.match(said(blind, 'PostgreSQL transactions'), { level: 'ok', found: /cannot be seen/ })

  // The remedy works.
  await sql.unsafe(`select pg_terminate_backend(${pid}, 60000)`)
  await idle`insert into shop values (1)`
  t.match(
    (await lookAtHolders(sql, 0)).holders,
    only({ detail: /^insert into shop/ }),
    'a change keeps dead rows too'
  )
  await idle`prepare transaction 'two phases'`
  const prepared = await lookAtHolders(sql, 0)
  t.match(prepared.holders, only({ kind: 'prepared', name: 'two phases', user: 'postgres' }))
  const { remedy = '' } = said(prepared, 'PostgreSQL transactions') as { remedy?: string }
  await idle.unsafe(remedy.replace(/, or .*/, ''))
  t.same((await lookAtHolders(sql, 0)).holders, [])
})

t.test('a replication slot that nobody reads is named, with what it keeps', async t => {
  const { sql } = await ownPostgres(t)
  t.match(said(await lookAtHolders(sql), 'PostgreSQL replication'), { level: 'ok' })
  await sql`select pg_create_physical_replication_slot('unused')`
  t.match(said(await lookAtHolders(sql), 'PostgreSQL replication'), { level: 'ok' }, 'it keeps nothing yet')
  await sql`select pg_create_physical_replication_slot('left', true)`
  const found = await lookAtHolders(sql)
  t.match(said(found, 'PostgreSQL replication'), {
    level: 'warn',
    found: /^kept for the physical slot left: \d+ \w+ of WAL$/,
    remedy: "connect its reader, or select pg_drop_replication_slot('left')"
  })
  await sql`select pg_drop_replication_slot('left')`
  t.match(said(await lookAtHolders(sql), 'PostgreSQL replication'), { level: 'ok' })
})
