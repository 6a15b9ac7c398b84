// The daily partitions of attempt and receipt: made ahead, dropped as a whole, but never with rows of an open task.
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { migrate } from '../../src/db/migrate.ts'
import {
  lockHoldersOf,
  daysAhead,
  gapsOf,
  listPartitions,
  makePartitions,
  oldestYoung,
  tendPartition,
  droppedFrom,
  withPartitions,
  type Partition
} from '../../src/db/partitions.ts'
import { connect, openDb, type Sql } from '../../src/db/pool.ts'
import { removeOld } from '../../src/db/retention.ts'
import { completer } from '../../src/delivery/complete.ts'
import { timeOf, uuidAt } from '../../src/domain/ids.ts'
import { phaseOf, states, type State } from '../../src/domain/transitions.ts'
import { sleep } from '../../src/runtime/repeat.ts'
import { only } from '../support/only.ts'
import { emptyDb, testDb } from '../support/postgres.ts'
import { idOf, standing, tried } from '../support/rows.ts'
import { until } from '../support/until.ts'
import type { DeliveryState } from '../support/model.ts'

const dayMs = 86_400_000
const at = (state: State): DeliveryState => ({ state, attempt: 1, triesLeft: 3, lost: 0, roundFrom: 1 })
const make = async (sql: Sql, daysAgo: number) => {
  for (const parent of ['attempt', 'receipt'])
    await sql`select make_partition(${parent}, ${uuidAt(new Date(Date.now() - daysAgo * dayMs))}::uuid)`
}

/** As if the migration had been long ago: the first partition ends `fromDaysAgo`, before all rows of a test. */
async function daily(sql: Sql, fromDaysAgo: number): Promise<void> {
  for (const parent of ['attempt', 'receipt']) {
    const first = `${parent}_first`
    const high = uuidAt(new Date(Math.floor(Date.now() / dayMs - fromDaysAgo) * dayMs))
    await sql.unsafe(`alter table ${parent} detach partition ${first}`)
    await sql.unsafe(
      `alter table ${parent} attach partition ${first} for values from (minvalue) to ('${high}')`
    )
  }
  for (let ago = fromDaysAgo; ago >= -1; ago--) await make(sql, ago)
}

async function tried1(sql: Sql, id: string): Promise<void> {
  await sql`
    insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
    values (${id}, 'warehouse', 1, 'delivered', 1, 'a', now())`
  await sql`
    insert into receipt (task_id, downstream, attempt, result, applied) values (${id}, 'warehouse', 1, 'HANDLED', true)`
}

/** Runs all turns of retention, as a dispatcher does. Returns the result for each partition that was due. */
async function retain(sql: Sql, days: number): Promise<Record<string, unknown>> {
  const partitions = await listPartitions(sql)
  const oldest = await oldestYoung(sql, days)
  const whole = droppedFrom(partitions, oldest)
  let after: string | null = null
  do ({ next: after } = await removeOld(sql, days, 7, after, undefined, whole))
  while (after !== null)
  const became: Record<string, unknown> = {}
  for (const one of partitions.filter(({ high }) => high <= oldest)) {
    // On a busy machine a look may take too long. The next turn repeats it.
    do became[one.name] = await tendPartition(sql, one, 5)
    while (became[one.name] === 'later')
  }
  return became
}

const idsIn = async (sql: Sql, table: string) =>
  (await sql.unsafe(`select distinct task_id::text as id from ${table} order by 1`)).map(row =>
    String(row['id'])
  )

t.test('partitions are made a week ahead, each once, by however many at once', async t => {
  const { sql } = await testDb(t)
  const before = await listPartitions(sql)
  const later = Date.now() + 5 * dayMs
  await Promise.all([1, 2, 3].map(() => makePartitions(sql, before, later)))
  const made = await listPartitions(sql)
  t.ok(made.length > before.length)
  for (const parent of ['attempt', 'receipt']) {
    const mine = made.filter(one => one.parent === parent)
    t.equal(mine.filter(({ low }) => low === null).length, 1)
    for (const [n, one] of mine.slice(1).entries()) t.equal(one.low, mine[n]?.high, 'no day is missing')
    t.ok(timeOf(mine.at(-1)?.high ?? '').getTime() > later + daysAhead * dayMs)
  }
  await makePartitions(sql, made, later)
  t.same(await listPartitions(sql), made)
})

t.test(
  'an outcome is written though nobody made a partition for it: no dispatcher ran, or a clock is wrong',
  async t => {
    const { sql } = await testDb(t)
    await daily(sql, 3)
    const complete = completer({
      sql,
      metrics: { moved() {}, ended() {} },
      giveUp: new AbortController().signal
    })
    const ids = [idOf(-300), idOf(0), idOf(200 - 3), idOf(-40)]
    await sql.unsafe('drop table attempt_first, receipt_first')
    for (const taskId of ids) await standing(sql, at('IN_FLIGHT'), { taskId })
    const written = await Promise.all(
      ids.map((taskId, n) =>
        complete({
          move:
            n % 2
              ? { taskId, downstream: 'warehouse', attempt: 1, name: 'retry', afterMs: 1_000 }
              : { taskId, downstream: 'warehouse', attempt: 1, name: 'handled', handledBy: 'send' },
          attempt: tried(),
          task: { messageCode: 'order.paid' }
        })
      )
    )
    t.same(written, ['moved', 'moved', 'moved', 'moved'])
    t.same(await idsIn(sql, 'attempt'), ids.toSorted())
  }
)

t.test('a day has 24 hours in any time zone of the session, also when clocks change', async t => {
  const { url } = await testDb(t)
  const sql = connect(url, { max: 1, onnotice: () => {} }) as unknown as Sql
  t.teardown(() => sql.end())
  const days = ['2027-03-27', '2027-03-28', '2027-03-29', '2027-10-30', '2027-10-31', '2027-11-01']
  await sql`set timezone = 'Europe/Berlin'`
  for (const day of days) await sql`select make_partition('attempt', ${uuidAt(new Date(day))}::uuid)`
  const made = (await listPartitions(sql)).filter(({ name }) => name.startsWith('attempt_2027'))
  t.same(
    made.map(({ name, low, high }) => [name, low, high]),
    days.map(day => [
      `attempt_${day.replaceAll('-', '')}`,
      uuidAt(new Date(day)),
      uuidAt(new Date(Date.parse(day) + dayMs))
    ])
  )
})

t.test('our sessions have UTC and ISO dates, whatever the server has', async t => {
  const { sql: admin, url } = await testDb(t)
  const name = new URL(url).pathname.slice(1)
  await admin.unsafe(`alter database "${name}" set timezone = 'America/New_York'`)
  await admin.unsafe(`alter database "${name}" set datestyle = 'German'`)
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  const [row] = await sql`
    select current_setting('timezone') as zone, timestamptz '2027-03-28 12:00Z' as at, timestamptz '2027-03-29 12:00Z' - interval '1 day' as before`
  t.same(row, {
    zone: 'UTC',
    at: new Date('2027-03-28T12:00:00Z'),
    before: new Date('2027-03-28T12:00:00Z')
  })
})

t.test('stretches without a partition get one, beside partitions that are an hour off', async t => {
  const { sql } = await testDb(t)
  const day = Date.parse('2027-10-30')
  const [hour, of] = [dayMs / 24, (ms: number) => uuidAt(new Date(ms))]
  // As a session in a zone with daylight saving made them: one ends an hour early, one an hour late.
  for (const [name, from, to] of [
    ['early', day, day + dayMs - hour],
    ['late', day + dayMs, day + 2 * dayMs + hour]
  ] as const) {
    await sql.unsafe(`create table attempt_${name} (like attempt including defaults including constraints)`)
    await sql.unsafe(
      `alter table attempt attach partition attempt_${name} for values from ('${of(from)}') to ('${of(to)}')`
    )
  }
  const task = of(day + 2 * dayMs + 5 * hour)
  const write = (taskId: string) => sql`
    insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
    values (${taskId}, 'warehouse', 1, 'delivered', 1, 'a', now())`
  await t.rejects(write(task), { code: '23514' })
  await withPartitions(
    sql,
    () => [task],
    () => write(task)
  )
  await makePartitions(sql, await listPartitions(sql), day)
  const there = await listPartitions(sql)
  for (const parent of ['attempt', 'receipt'] as const)
    t.same(gapsOf(there, parent, day, day + (daysAhead + 1) * dayMs), [])
  t.same(
    there
      .filter(({ name }) => /^attempt_202710(30|31)|^attempt_20271101/.test(name))
      .map(one => [one.name, timeOf(one.low ?? ''), timeOf(one.high)]),
    [
      ['attempt_20271030_2300', new Date(day + dayMs - hour), new Date(day + dayMs)],
      ['attempt_20271101_0100', new Date(day + 2 * dayMs + hour), new Date(day + 3 * dayMs)]
    ]
  )
  await write(of(day + dayMs - 1))
  t.equal((await sql`select task_id from attempt where task_id >= ${of(day)}`).length, 2)
})

t.test('a day goes as a whole once no task of it is left; its receipts and attempts with it', async t => {
  const { sql } = await testDb(t)
  await daily(sql, 60)
  for (const days of [0, 10, 39, 40, 40.2, 41, 42])
    await tried1(sql, await standing(sql, at('HANDLED'), { taskId: idOf(days) }))
  const open = await standing(sql, at('WAITING'), { taskId: idOf(42) })
  await tried1(sql, open)
  const nameOf = (parent: string, daysAgo: number) =>
    `${parent}_${new Date(Date.now() - daysAgo * dayMs).toISOString().slice(0, 10).replaceAll('-', '')}`
  const became = await retain(sql, 30)
  t.equal(became['attempt_first'], 'dropped')
  t.equal(became[nameOf('attempt', 41)], 'dropped')
  t.equal(became[nameOf('receipt', 42)], 'kept', 'somebody of that day is not done')
  const left = await sql<{ id: string }[]>`select id::text from task order by id`
  t.equal(left.length, 3)
  for (const table of ['attempt', 'receipt'])
    t.same(
      await idsIn(sql, table),
      left.map(({ id }) => id),
      table
    )
  const names = (await listPartitions(sql)).map(({ name }) => name)
  t.notOk(names.includes(nameOf('attempt', 41)))
  t.ok(names.includes(nameOf('attempt', 42)))
})

t.test('H3: with random states, days and clocks, no row of a task that is open is ever dropped', async t => {
  const { sql } = await testDb(t)
  await daily(sql, 45)
  const expected: string[] = []
  const days = 5 + Math.floor(Math.random() * 30)
  for (let n = 0; n < 120; n++) {
    const state = states[Math.floor(Math.random() * states.length)] ?? 'WAITING'
    // The clocks of some hosts are far behind.
    const age = Math.random() < 0.1 ? 20_000 : Math.random() * 60
    const id = await standing(sql, at(state), { taskId: idOf(age) })
    await tried1(sql, id)
    if (phaseOf(state) !== null || age < days) expected.push(id)
  }
  const became = await retain(sql, days)
  t.comment(`${days} days: ${Object.values(became).filter(one => one === 'dropped').length} dropped`)
  t.same(
    (await sql`select id::text from task order by id`).map(row => String(row['id'])),
    expected.toSorted()
  )
  const ids = new Set(await idsIn(sql, 'attempt'))
  const received = new Set(await idsIn(sql, 'receipt'))
  t.same(
    expected.filter(id => !ids.has(id) || !received.has(id)),
    [],
    'each has its rows'
  )
  const oldest = await oldestYoung(sql, days)
  t.same(
    [...ids, ...received].filter(
      id => !expected.includes(id) && id < uuidAt(new Date(timeOf(oldest).getTime() - dayMs))
    ),
    [],
    'and of what is gone none are left, but of the day that is not over'
  )
})

t.test(
  'a task that comes while its day is being dropped keeps its rows: its clock is a month behind',
  async t => {
    const { sql } = await testDb(t)
    await daily(sql, 60)
    const [partition] = (await listPartitions(sql)).filter(
      ({ name, low }) => low !== null && name.startsWith('attempt_')
    )
    // The task is inserted between the look and the drop. The drop looks again.
    const id = await standing(sql, at('IN_FLIGHT'), { taskId: idOf(60) })
    const [done] = await sql<
      { dropped: boolean }[]
    >`select drop_partition('attempt', ${partition?.name ?? ''}) as dropped`
    t.equal(done?.dropped, false)
    await tried1(sql, id)
    const today = (await listPartitions(sql)).find(({ high }) => timeOf(high).getTime() > Date.now())
    const [never] = await sql<
      { dropped: boolean }[]
    >`select drop_partition('attempt', ${today?.name ?? ''}) as dropped`
    t.equal(never?.dropped, false, 'and one of today never goes')
    t.same(await idsIn(sql, 'attempt'), [id])
  }
)

t.test(
  'an open snapshot keeps a day from being dropped, is named, holds up nobody, and then it goes',
  async t => {
    const { sql, url } = await testDb(t)
    await daily(sql, 60)
    const dump = openDb(url, { max: 1, applicationName: 'pg_dump' })
    t.teardown(() => dump.end())
    await dump.unsafe('begin isolation level repeatable read')
    await dump.unsafe('select count(*) from attempt')
    const [partition] = (await listPartitions(sql)).filter(({ parent }) => parent === 'attempt') as [
      Partition
    ]
    await until(
      'the snapshot is older than a second',
      async () => (await lockHoldersOf(sql, partition)).length === 1
    )
    const became = await tendPartition(sql, partition, 5)
    t.match(became, { blockedBy: only({ application: 'pg_dump' }) })
    await t.rejects(
      sql`select drop_partition('attempt', ${partition.name})`,
      { code: '55P03' },
      'it would not wait for long'
    )
    await tried1(sql, await standing(sql, at('HANDLED')))
    await dump.unsafe('commit')
    await until('it is gone', async () => (await tendPartition(sql, partition, 5)) === 'dropped')
    t.notOk((await listPartitions(sql)).some(({ name }) => name === partition.name))
  }
)

t.test('an old day is dropped though the database is far away', async t => {
  const { sql } = await testDb(t)
  await daily(sql, 60)
  const [partition] = (await listPartitions(sql)) as [Partition]
  const far = new Proxy(sql, {
    apply(target, self, args) {
      const pending = Reflect.apply(target, self, args) as unknown
      return pending instanceof Promise ? sleep(60).then(() => pending) : pending
    }
  })
  t.equal(await tendPartition(far, partition, 5), 'dropped')
})

t.test(
  'the version before goes on beside it: its inserts know a repeat, its removal finds all rows',
  async t => {
    const { sql } = await testDb(t)
    await daily(sql, 60)
    const ids = [idOf(0), idOf(59.5), idOf(-1)]
    const insert = () => sql`
    insert into attempt (task_id, downstream, attempt, outcome, ms, node, started_at)
    select id, 'warehouse', 1, 'delivered', 1, 'a', now() from unnest(${ids}::uuid[]) id
    on conflict do nothing returning task_id`
    t.equal((await insert()).length, 3)
    t.equal((await insert()).length, 0, 'a zombie is told by what it could not write')
    for (const id of ids)
      await sql`
      insert into receipt (task_id, downstream, attempt, result, applied) values (${id}, 'warehouse', 1, 'HANDLED', true)`
    await sql`
    with old as materialized (select unnest(${ids}::uuid[]) as id),
    receipts as (delete from receipt using old where receipt.task_id = old.id),
    attempts as (delete from attempt using old where attempt.task_id = old.id)
    select count(*) from old`
    t.same([...(await idsIn(sql, 'attempt')), ...(await idsIn(sql, 'receipt'))], [])
  }
)

t.test(
  'a process whose role does not own the tables makes, cleans and drops partitions all the same',
  async t => {
    const { sql, url } = await testDb(t)
    await daily(sql, 60)
    const role = `app_${process.pid}`
    await sql.unsafe(`create role ${role} login password 'app'`)
    t.teardown(async () => {
      await sql.unsafe(`drop owned by ${role}`)
      await sql.unsafe(`drop role ${role}`)
    })
    for (const table of ['task', 'delivery', 'attempt', 'receipt'])
      await sql.unsafe(`grant select, insert, update, delete on ${table} to ${role}`)
    await sql.unsafe(
      `grant execute on function make_partition(text, uuid), drop_partition(text, text) to ${role}`
    )
    const open = await standing(sql, at('WAITING'), { taskId: idOf(50) })
    for (const id of [open, idOf(50), idOf(50)]) await tried1(sql, id)
    const as = new URL(url)
    as.username = role
    as.password = 'app'
    const app = openDb(as.href, { max: 1 })
    t.teardown(() => app.end())
    await makePartitions(app, await listPartitions(app), Date.now() + 5 * dayMs)
    const due = (await listPartitions(app)).filter(
      one => one.parent === 'attempt' && one.high < uuidAt(new Date(Date.now() - 45 * dayMs))
    )
    // Of another user's session this role sees no times.
    const dump = openDb(url, { max: 1, applicationName: 'pg_dump' })
    t.teardown(() => dump.end())
    await dump.unsafe('begin isolation level repeatable read')
    await dump.unsafe('select count(*) from attempt')
    const [{ pid }] = await dump<[{ pid: number }]>`select pg_backend_pid() as pid`
    const drops = due.filter(one => !(one.low !== null && one.low <= open && open < one.high))
    t.ok(drops[0])
    t.same(await tendPartition(app, drops[0] as Partition, 1), {
      blockedBy: [{ pid, application: 'pg_dump', seconds: null }]
    })
    await dump.unsafe('commit')
    const became = new Set<unknown>()
    for (const one of due) {
      let end: unknown
      do end = await tendPartition(app, one, 1)
      while (end === 'later')
      became.add(end)
    }
    t.same(became, new Set(['dropped', 'kept']))
    t.same(await idsIn(sql, 'attempt'), [open])
  }
)

t.test('roles that may insert attempts keep the functions when others lose them', async t => {
  const url = await emptyDb(t)
  await migrate(url, undefined, migrationsBefore(t, '0013_partition_rights'))
  const sql = openDb(url, { max: 1 })
  t.teardown(() => sql.end())
  const [writer, other] = [`Writer "${process.pid}"`, `reader_${process.pid}`]
  for (const role of [writer, other]) {
    await sql`create role ${sql(role)}`
    t.teardown(async () => {
      await sql`drop owned by ${sql(role)}`
      await sql`drop role ${sql(role)}`
    })
  }
  await sql`grant insert on attempt to ${sql(writer)}`
  await sql`grant select on attempt to ${sql(other)}`
  const mayCall = async () =>
    (
      await sql`
        select r.rolname as role, p.proname as name from pg_roles r, pg_proc p
        where r.rolname = any(${[writer, other]}) and p.proname in ('make_partition', 'drop_partition')
          and has_function_privilege(r.oid, p.oid, 'execute')
        order by 1, 2`
    ).map(row => `${row['role']} ${row['name']}`)
  t.equal((await mayCall()).length, 4)
  await migrate(url)
  t.same(await mayCall(), [`${writer} drop_partition`, `${writer} make_partition`])
})

/** A folder with the migrations that are older than this one. */
function migrationsBefore(t: Test, tag: string): string {
  const into = t.testdir()
  cpSync(path.resolve(import.meta.dirname, '../../../src/db/migrations'), into, { recursive: true })
  const file = path.join(into, 'meta/_journal.json')
  const journal = JSON.parse(readFileSync(file, 'utf8')) as { entries: { tag: string }[] }
  const upTo = journal.entries.findIndex(entry => entry.tag === tag)
  writeFileSync(file, JSON.stringify({ ...journal, entries: journal.entries.slice(0, upTo) }))
  return into
}
