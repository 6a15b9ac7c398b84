// Rows of the outbox that cannot be read: the rows beside them become tasks, and an operator sees them.
import t, { type Test } from 'tap'
import { listAlarms } from '../../src/db/lists.ts'
import { readOutboxStuck } from '../../src/db/outbox-alarm.ts'
import { listRejected } from '../../src/db/rejected.ts'
import type { Sql } from '../../src/db/pool.ts'
import { outboxHealth } from '../../src/delivery/outbox-health.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'
import { setup } from '../support/setup.ts'

async function shop(t: Test) {
  const { sql, reads } = await testDb(t, { max: 8 })
  const story = await setup(t, { sql })
  const enqueue = (taskNo: string, extend: string | null = null) =>
    sql`select ackbox_api.enqueue('order.paid', '{"orderId": "A"}'::text, ${taskNo}, extend => ${extend}::text::jsonb)`
  const rejected = async () => (await listRejected(reads, { messageCodes: null, limit: 50 })).rejected
  const taskNos = async () =>
    (await sql<{ task_no: string }[]>`select task_no from task order by id`).map(row => row.task_no)
  return { ...story, reads, enqueue, rejected, taskNos }
}

/** Numbers of eight stored bytes each, with 131,001 digits as text. */
const huge = (count: number) => `[${Array.from({ length: count }, () => '1e131000').join()}]`

t.test(
  'a row with more than 1 GB of text in 2 KB of extend is rejected, and its neighbours are tasks',
  async t => {
    const { enqueue, acceptRows, rejected, taskNos } = await shop(t)
    await enqueue('before')
    await enqueue('huge', huge(9_000))
    await enqueue('after')
    await acceptRows()
    t.same(await taskNos(), ['before', 'after'])
    t.match(await rejected(), only({ taskNo: 'huge', problem: { code: 'INVALID', pointer: '/extend' } }))
  }
)

t.test('nor do many rows that are each small enough to be a text use up the time of a look', async t => {
  const { enqueue, acceptRows, rejected, taskNos, logged } = await shop(t)
  for (let n = 0; n < 24; n++) await enqueue(`huge-${n}`, huge(5_000))
  await enqueue('after')
  await acceptRows()
  t.same(await taskNos(), ['after'])
  t.equal((await rejected()).length, 24)
  t.same(logged('outbox.look_failed'), [], 'no text was built')
})

t.test(
  'a number with many digits behind its point is large too, in members of enqueue_many as well',
  async t => {
    const { sql, enqueue, acceptRows, rejected, taskNos } = await shop(t)
    const fine = `1.${'0'.repeat(16_000)}`
    await enqueue('fine', `[${Array.from({ length: 90 }, () => fine).join()}]`)
    await sql`select ackbox_api.enqueue_many(${`[{"taskNo": "many", "messageCode": "order.paid", "messageBody": 1, "extend": ${huge(600)}}]`}::text::jsonb)`
    await enqueue('after')
    await acceptRows()
    t.same(await taskNos(), ['after'])
    t.match(
      await rejected(),
      only(
        { taskNo: 'many', problem: { code: 'TOO_LARGE' } },
        { taskNo: 'fine', problem: { code: 'INVALID' } }
      )
    )
  }
)

/** From now on, `message_body` of this row, or of each, is this SQL. */
async function replaceBody(sql: Sql, taskNo: string | undefined, body: string): Promise<void> {
  const columns = await sql<{ name: string }[]>`
    select column_name as name from information_schema.columns where table_name = 'outbox' order by ordinal_position`
  const all = columns.map(({ name }) =>
    name === 'message_body'
      ? `case when ${taskNo === undefined ? 'true' : `task_no = '${taskNo}'`} then ${body} else message_body end as message_body`
      : name
  )
  await sql.unsafe(
    `alter table outbox rename to sound; create view outbox as select ${all.join()} from sound`
  )
}

/** The same; it fails so often, and has a value then. */
async function failReads(
  sql: Sql,
  taskNo: string,
  { times, code }: { times: number; code: string }
): Promise<void> {
  await sql.unsafe(`
    create sequence reads;
    create function failing_body(task_no text) returns text stable language plpgsql as
      $$begin
        if nextval('reads') <= ${times} then raise exception 'no such chunk' using errcode = '${code}'; end if;
        return '{"orderId": "A"}';
      end$$;`)
  await replaceBody(sql, taskNo, 'failing_body(task_no)')
}

t.test(
  'a row that PostgreSQL cannot read is found among its neighbours, and rejected with the error',
  async t => {
    const { sql, enqueue, acceptRows, rejected, taskNos, logged } = await shop(t)
    for (let n = 0; n < 5; n++) await enqueue(`before-${n}`)
    await enqueue('corrupt')
    for (let n = 0; n < 5; n++) await enqueue(`after-${n}`)
    // The look, and the reads of 11, 6, 3 and 1 rows.
    await failReads(sql, 'corrupt', { times: 5, code: 'XX001' })
    await acceptRows()
    t.equal((await taskNos()).length, 10)
    const problem = { code: 'INVALID', detail: 'The row cannot be read: no such chunk' }
    t.match(await rejected(), only({ taskNo: 'corrupt', problem }))
    t.match(logged('outbox.look_failed'), { length: 1 })
  }
)

t.test('a row that can be neither read nor moved stays, in sight, and its neighbours are tasks', async t => {
  const { sql, reads, enqueue, acceptRows, rejected, taskNos, logged } = await shop(t)
  for (const taskNo of ['before', 'broken', 'after']) await enqueue(taskNo)
  await replaceBody(sql, 'broken', '(1 / (id - id))::text')
  await acceptRows()
  t.same(await taskNos(), ['before', 'after'])
  t.same(await rejected(), [])
  t.match(logged('outbox.unmovable'), { length: 1 })

  let now = 0
  const health = outboxHealth({ sql, now: () => now })
  health.saw(new Error('division by zero'))
  await health.report(90_000)
  t.equal(health.state(), 'ok', 'not at once: it may be a moment of load')
  now += 60_000
  await health.report(90_000)
  t.equal(health.state(), 'stuck')
  await outboxHealth({ sql, now: () => now }).report(0)
  t.equal(
    await readOutboxStuck(sql),
    undefined,
    'a process whose looks succeed resolves what an earlier one raised'
  )
  await sql`delete from alarm`
  await health.report(90_000)
  await health.report(90_000)
  const open = { messageCodes: null, limit: 50, open: true, from: new Date(0) }
  t.match(await listAlarms(reads, open), {
    alarms: only({ kind: 'REJECTED', reason: 'OUTBOX_STUCK: division by zero', taskNo: '' })
  })
  health.saw(undefined)
  await health.report(0)
  t.match(await listAlarms(reads, open), { alarms: [] })
})

t.test('a row is not rejected for one look that took too long', async t => {
  const { sql, enqueue, acceptRows, rejected, taskNos, outboxOfAnother } = await shop(t)
  for (const taskNo of ['before', 'slow', 'after']) await enqueue(taskNo)
  await failReads(sql, 'slow', { times: 4, code: '57014' })
  const outbox = outboxOfAnother()
  await acceptRows(outbox)
  t.same(await taskNos(), ['before', 'after'])
  t.same(await rejected(), [])
  await acceptRows(outbox)
  t.same(await taskNos(), ['before', 'after', 'slow'])
})

t.test('no row is rejected for a moment in which the database cannot read any', async t => {
  const { sql, enqueue, acceptRows, rejected, taskNos, outboxOfAnother } = await shop(t)
  for (const taskNo of ['one', 'two', 'three']) await enqueue(taskNo)
  await sql.unsafe(`
    create table load (code text);
    insert into load values (null);
    create function loaded(body text) returns text stable language plpgsql as
      $$declare found text := (select code from load);
      begin
        if found is not null and current_query() !~* 'delete' then raise exception 'the server is busy' using errcode = found; end if;
        return body;
      end$$;`)
  await replaceBody(sql, undefined, 'loaded(message_body)')
  const outbox = outboxOfAnother()
  for (const code of ['53200', '57014', '55P03', 'XX000', '26000', '25P02']) {
    await sql`update load set code = ${code}`
    for (let n = 0; n < 4; n++) await acceptRows(outbox)
    t.same(await rejected(), [], code)
    t.same(await taskNos(), [], code)
  }
  await sql`update load set code = null`
  await acceptRows(outbox)
  t.same(await taskNos(), ['one', 'two', 'three'])
})

t.test('a body that ends too early is told in the words of its own text', async t => {
  const { sql, acceptRows, rejected } = await shop(t)
  for (const body of ['', ' ', '{"a":', '{"a":{"b":[1'])
    await sql`select ackbox_api.enqueue('order.paid', ${body}::text, extend => '{"by": "me"}')`
  await acceptRows()
  t.same(
    (await rejected())
      .map(({ problem }) => [
        (problem as { detail: string }).detail,
        (problem as { pointer: string }).pointer
      ])
      .toReversed(),
    [
      ['Expected a value, but the text ends, at byte 0', '/messageBody'],
      ['Expected a value, but the text ends, at byte 1', '/messageBody'],
      ['Expected a value, but the text ends, at byte 5', '/messageBody/a'],
      ['Expected a comma or ], but the text ends, at byte 12', '/messageBody/a/b/0']
    ]
  )
})
