// Rows of a message table that its database cannot compute: they are set aside, and all others are imported.
import { readFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { readColumns } from '../../src/relay/columns.ts'
import { withTable, type TableQuery } from '../../src/relay/table.ts'
import { answer, fakeAckbox } from '../producer/fake-ackbox.ts'
import { testMariadb } from '../support/mariadb.ts'
import { only } from '../support/only.ts'
import { emptyDb } from '../support/postgres.ts'
import { program } from '../support/program.ts'
import { folder } from '../support/service.ts'
import { bin } from './producer.ts'

t.setTimeout(600_000)

/** 60 messages. The rows 7 and 42 have no share: 0 is divided by. */
const table = `create table message (id int primary key, msg_id varchar(40), payload text, parts int);`
const rows = Array.from({ length: 60 }, (_, index) => index + 1)
const insert = `insert into message values ${rows.map(n => `(${n}, 'm-${n}', '{}', ${n === 7 || n === 42 ? 0 : 1})`).join()}`

async function shop(t: Test) {
  const url = await emptyDb(t)
  const sql = openDb(url, { max: 1, applicationName: 'shop' })
  t.teardown(() => sql.end({ timeout: 5 }))
  await sql.unsafe(table + insert)
  return { url, sql }
}

const columns = "taskNo=msg_id,messageCode='order.paid',messageBody=payload,bizKey=(id / parts)::text"

async function read(url: string, more: Partial<TableQuery> = {}) {
  const query = {
    table: 'message',
    columns: readColumns(columns),
    where: undefined,
    order: 'id',
    batch: 10,
    ...more
  }
  const found: { taskNo: string; problem: string | undefined }[] = []
  await withTable(
    url,
    query,
    async ({ batches }) => {
      for await (const batch of batches)
        found.push(...batch.map(({ taskNo, problem }) => ({ taskNo, problem })))
    },
    new AbortController().signal
  )
  return {
    sound: found.filter(row => row.problem === undefined).map(row => row.taskNo),
    broken: found.filter(row => row.problem !== undefined)
  }
}

const broken = (numbers = [7, 42]): string[] => numbers.map(n => `m-${n}`)
const sound = (numbers = [7, 42]): string[] => rows.filter(n => !numbers.includes(n)).map(n => `m-${n}`)

t.test(
  'rows that PostgreSQL cannot compute are in the file of refused rows, and all others become tasks',
  async t => {
    const { url } = await shop(t)
    const fake = await fakeAckbox(t)
    const posted: string[] = []
    fake.script = ({ text }, response) => {
      const { tasks } = JSON.parse(text) as { tasks: { taskNo: string }[] }
      posted.push(...tasks.map(one => one.taskNo))
      return answer(response, 200, { results: tasks.map(({ taskNo }) => ({ taskNo, status: 201 })) })
    }
    const cwd = folder(t)
    const options = ['--table', 'message', '--columns', columns, '--order', 'id', '--batch', '10']
    const args = [bin, 'import', '--from', url, '--to', fake.url, ...options]
    const copy = program(t, process.execPath, args, { env: {}, cwd })
    t.equal(await copy.exited, 2)
    t.ok(copy.lines.includes('60 of 60 rows: 58 new, 0 already there, 2 rejected · done'))
    t.same(posted, sound())
    const file = readFileSync(path.join(cwd, 'import-rejected.ndjson'), 'utf8').trim().split('\n')
    t.match(
      file.map(line => JSON.parse(line) as object),
      only(
        ...broken().map(taskNo => ({
          row: { taskNo },
          problem: { code: 'INVALID', detail: /cannot be read: division by zero \(ctid \(0,\d+\)\)/ }
        }))
      )
    )
  }
)

t.test('a row whose taskNo cannot be computed has its place in the table as its name', async t => {
  const { url } = await shop(t)
  const taskNo = "taskNo=('m-' || id * parts / parts),messageCode='order.paid',messageBody=payload"
  const found = await read(url, { columns: readColumns(taskNo), order: undefined })
  t.same(found.sound, sound())
  t.match(
    found.broken,
    only({ taskNo: '', problem: /ctid \(0,7\)/ }, { taskNo: '', problem: /ctid \(0,42\)/ })
  )
})

t.test('a table in partitions, with an alias, and one whose payload is too large as text', async t => {
  const { url, sql } = await shop(t)
  await sql.unsafe(`
    alter table message rename to single;
    create table message (like single) partition by hash (id);
    create table a partition of message for values with (modulus 2, remainder 0);
    create table b partition of message for values with (modulus 2, remainder 1);
    insert into message select * from single`)
  // More than PostgreSQL can hold in one value.
  const huge = `${columns.replace('=msg_id', '=m.msg_id')},bizType=repeat('x', case when m.id = 9 then 2000000000 end)`
  const found = await read(url, {
    table: 'message as m',
    where: 'm.id > 0 or m.id < 0',
    columns: readColumns(huge)
  })
  t.same(found.sound, sound([7, 9, 42]))
  t.same(found.broken.map(row => row.taskNo).toSorted(), broken([42, 7, 9]))
})

for (const [what, from] of Object.entries({
  'a view': 'seen',
  'several tables': 'message join other using (id)',
  'a subquery': '(select * from message) m'
}))
  t.test(`the rows of ${what} that cannot be computed are found by their taskNo`, async t => {
    const { url, sql } = await shop(t)
    await sql.unsafe(
      'create view seen as select * from message; create table other as select id from message'
    )
    // A row that was read has the taskNo of one that was not: it is read too, and Ackbox tells whether it is the same.
    await sql.unsafe("update message set msg_id = 'm-1' where id = 60")
    const found = await read(url, { table: from })
    const expected = rows.filter(n => ![7, 42, 60].includes(n)).map(n => `m-${n}`)
    t.same([...new Set(found.sound)].toSorted(), expected.toSorted())
    t.equal(found.sound.filter(taskNo => taskNo === 'm-1').length >= 2, true)
    t.match(found.broken, only({ taskNo: 'm-7', problem: /division by zero/ }, { taskNo: 'm-42' }))
  })

t.test('without a key, the error names the rows before it and the remedy', async t => {
  const { url } = await shop(t)
  const taskNo = "taskNo=('m-' || id * parts / parts),messageCode='order.paid',messageBody=payload"
  await t.rejects(
    read(url, {
      table: '(select * from message where id > 10) m',
      columns: readColumns(taskNo),
      order: undefined
    }),
    {
      message:
        /cannot compute a row of the query, behind the first 30 rows, whose last has the taskNo m-40: division by zero\..*--where/
    }
  )
})

t.test('an order by a name or a number of a member is the order of the tasks', async t => {
  const { url } = await shop(t)
  const plain = readColumns("taskNo=msg_id,messageCode='order.paid',messageBody=payload")
  for (const order of ['"taskNo" desc', '1 desc', 'id desc'])
    t.equal((await read(url, { columns: plain, order })).sound[0], order === 'id desc' ? 'm-60' : 'm-9')
})

t.test('rows that MariaDB cannot compute are set aside, and all others are read', async t => {
  const mariadb = await testMariadb(t)
  if (!mariadb) return
  await mariadb.pool.query(table + insert)
  // A subquery of several rows is an error, of this row alone.
  const several =
    "taskNo=msg_id,messageCode='order.paid',messageBody=payload,bizKey=if(parts = 0, (select id from message o where o.id < 3), 'one')"
  const found = await read(mariadb.url, { columns: readColumns(several) })
  t.same(found.sound, sound())
  t.match(found.broken, only({ taskNo: 'm-7', problem: /more than 1 row/ }, { taskNo: 'm-42' }))
})

t.test('a row whose read is cancelled at this moment is read again, and imported', async t => {
  const { url, sql } = await shop(t)
  // The reads of 10, 5, 3 and 2 rows, and that of the row alone: counted by locks, which a rollback leaves to their session.
  await sql.unsafe(`
    create function cancelled(body text) returns text stable language plpgsql as
      $$declare reads int := (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid());
      begin
        if reads < 5 then
          perform pg_advisory_lock(reads);
          raise exception 'cancelled' using errcode = '57014';
        end if;
        return body;
      end$$`)
  const payload = 'case when id = 5 then cancelled(payload) else payload end'
  const found = await read(url, {
    columns: readColumns(`taskNo=msg_id,messageCode='order.paid',messageBody=${payload}`)
  })
  t.same(found.broken, [])
  t.equal(found.sound.length, 60)
})
