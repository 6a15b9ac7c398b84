// A relay dies at each failpoint of its batch, and another one continues: nothing is lost, nothing exists twice.
// Takes long: npm run test:long.
import path from 'node:path'
import t, { type Test } from 'tap'
import postgres from 'postgres'
import { ddl } from '../../src/producer/ddl.ts'
import type { Failpoint } from '../../src/runtime/failpoint.ts'
import { testMariadb } from '../support/mariadb.ts'
import { emptyDb } from '../support/postgres.ts'
import { program } from '../support/program.ts'
import { settled, start } from '../support/service.ts'
import { numbered, stage, tally } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const bin = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

interface Shop {
  url: string
  select(text: string): Promise<Record<string, unknown>[]>
}

async function onPostgres(t: Test): Promise<Shop> {
  const url = await emptyDb(t)
  const sql = postgres(url, { max: 1, onnotice: () => {} })
  t.teardown(() => sql.end())
  await sql.unsafe(ddl.postgres)
  return { url, select: async text => await sql.unsafe(text) }
}

async function onMariadb(t: Test): Promise<Shop | undefined> {
  const mariadb = await testMariadb(t)
  if (!mariadb) return undefined
  await mariadb.pool.query(ddl.mysql)
  const select = async (text: string): Promise<Record<string, unknown>[]> =>
    (await mariadb.pool.query(text))[0] as Record<string, unknown>[]
  return { url: mariadb.url, select }
}

/** `posted`: whether Ackbox has the tasks of the batch when the relay is dead. */
const moments: { name: Failpoint; posted: boolean }[] = [
  { name: 'relay.after_read', posted: false },
  { name: 'relay.after_post', posted: true },
  { name: 'relay.after_remove', posted: true }
]
const taskNos = numbered('row', 20)
const row = (taskNo: string, code: string, key: string | null): string =>
  `('${taskNo}', '${code}', '{"n": 1}', ${key === null ? 'null' : `'${key}'`})`
const rows = [
  ...taskNos.map((taskNo, nth) => row(taskNo, 'test.plain', nth % 2 === 0 ? null : 'one key')),
  row('refused', 'test.nobody', null)
]

for (const { name, posted } of moments)
  for (const [kind, shopOf] of Object.entries({ PostgreSQL: onPostgres, MariaDB: onMariadb }))
    t.test(`${kind}: kill -9 at ${name}: each row ends as one task, or among the rejected`, async t => {
      const shop = await shopOf(t)
      if (!shop) return
      const on = await stage(t, { patient: true })
      if (!on) return
      const service = await start(t, on.env)
      const relay = (env: Record<string, string> = {}) =>
        program(t, process.execPath, [bin, 'relay', '--from', shop.url, '--to', service.url, '--once'], {
          env
        })
      const noOf = async (table: string): Promise<unknown[]> =>
        (await shop.select(`select task_no from ${table} order by id`)).map(each => each['task_no'])
      await shop.select(
        `insert into ackbox_outbox (task_no, message_code, message_body, ordering_key) values ${rows.join()}`
      )

      const died = relay({ FAILPOINTS: `${name}=kill#1`, LOG_LEVEL: 'silent' })
      t.equal(await died.exited, null, 'it died of its own hand')
      await until(
        'its database let go of its rows',
        async () =>
          (await shop.select('select id from ackbox_outbox for update skip locked')).length === rows.length
      )
      // Two batches are in progress, one without a key and one of the key: neither is past this failpoint.
      t.equal((await noOf('ackbox_outbox')).length, rows.length, 'all rows are still there')
      const [known] = await on.sql<[{ tasks: number }]>`select count(*)::int as tasks from task`
      if (posted) t.ok(known.tasks >= 10, `${known.tasks} of them are tasks already`)
      else t.equal(known.tasks, 0)

      const next = relay()
      t.equal(await next.exited, 0, next.lines.join('\n'))
      t.same(await noOf('ackbox_outbox'), [])
      t.same(await noOf('ackbox_outbox_rejected'), ['refused'])
      for (const taskNo of taskNos)
        t.match(await settled(service.url, taskNo), { body: { status: 'HANDLED' } })
      t.same(await tally(on.sql), { HANDLED: taskNos.length })
      t.same(
        taskNos.filter(taskNo => on.downstream.count(taskNo) !== 1),
        [],
        'and none arrived twice'
      )
      t.equal((await service.kill('SIGTERM')).code, 0)
    })
