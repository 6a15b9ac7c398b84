// How deep JSON may be: the same by POST and by a row, in every database and language.
import { readFileSync } from 'node:fs'
import t from 'tap'
import { limits } from '../../src/json/source.ts'
import { readJson } from '../../src/json/reader.ts'
import { mostLevels } from '../../src/producer/levels.ts'
import { ddl, outbox, ProducerError } from '../../src/producer/producer.ts'
import { mariadbShop, postgresShop } from './databases.ts'

/** A bracket in a string is no level. */
const deep = (levels: number): string => `${'['.repeat(levels - 1)}["}[{\\"["]${']'.repeat(levels - 1)}`
const members = (levels: number): object => (levels === 1 ? { text: '{[' } : { in: members(levels - 1) })

t.test('producers have the limit of Ackbox, in TypeScript and Java', t => {
  t.equal(mostLevels, limits.depth)
  const java = readFileSync('sdk/java/src/main/java/ackbox/sdk/Task.java', 'utf8')
  t.equal(Number(/MOST_LEVELS = (\d+)/.exec(java)?.[1]), limits.depth)
  const whole = (body: number, extend: number) => () =>
    readJson(Buffer.from(`{"extend":${JSON.stringify(members(extend))},"messageBody":${deep(body)}}`), 'task')
  t.doesNotThrow(whole(64, 63))
  t.throws(whole(65, 1), { code: 'TOO_DEEP' })
  t.throws(whole(1, 64), { code: 'TOO_DEEP' })
  t.end()
})

for (const [kind, open] of [
  ['PostgreSQL', postgresShop],
  ['MariaDB', mariadbShop]
] as const) {
  t.test(`${kind}: outbox() takes what a POST takes, and refuses what it would refuse`, async t => {
    const shop = await open(t)
    if (!shop) return
    const put = (body: number, extend: number) =>
      shop.db.begin(native =>
        outbox(shop.db.within(native), {
          messageCode: 'deep',
          messageBodyText: deep(body),
          extend: members(extend)
        })
      )
    await put(64, 63)
    t.match(await shop.select('select message_body as body from ackbox_outbox'), [{ body: deep(64) }])
    await t.rejects(put(65, 1), new ProducerError('messageBody must be at most 64 levels deep.'))
    await t.rejects(put(1, 64), new ProducerError('extend must be at most 63 levels deep.'))
    await t.rejects(
      shop.select(`insert into ackbox_outbox (message_code, message_body) values ('broken', '{"a": [1, }')`),
      'and still no text that is not JSON'
    )
  })
}

t.test('a table of 1.0 in MariaDB names the remedy, which the DDL begins with', async t => {
  const shop = await mariadbShop(t)
  if (!shop) return
  const version = await shop.select('select version() as version')
  const isMariadb = String(version[0]?.['version']).includes('MariaDB')
  const [modify = '', body = '', extend = ''] =
    /alter table ackbox_outbox modify (message_body [^;]+?),\n--\s+modify (extend [^;]+);/.exec(ddl.mysql) ??
    []
  await shop.select(
    `alter table ackbox_outbox modify message_body mediumtext not null check (json_valid(message_body) = 1),
       modify extend text check (json_valid(extend) = 1)`
  )
  const put = () =>
    shop.db.begin(native =>
      outbox(shop.db.within(native), { messageCode: 'deep', messageBodyText: deep(40) })
    )
  if (isMariadb)
    await t.rejects(put(), { name: 'ProducerError', message: /at most 31 levels.*--print-ddl mysql/ })
  t.ok(modify)
  await shop.select(`alter table ackbox_outbox modify ${body}, modify ${extend}`)
  await put()
  t.match(await shop.select('select message_body as body from ackbox_outbox'), [{ body: deep(40) }])
})
