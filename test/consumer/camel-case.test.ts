// Libraries that are set to give columns names in camel case.
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { CamelCasePlugin, Kysely, PostgresDialect } from 'kysely'
import postgres from 'postgres'
import t, { type Test } from 'tap'
import { databaseOf } from '../../src/adapter/drivers.ts'
import { fromKysely, receiver, type Database, type PostgresJs } from '../../src/consumer/consumer.ts'
import { pgPool } from '../support/pg-pool.ts'
import { until } from '../support/until.ts'
import { newId, postgresBank, secret, signed, type Bank } from './databases.ts'

t.test('kysely with CamelCasePlugin', async t => {
  const bank = await postgresBank(t)
  const kysely = new Kysely<unknown>({
    dialect: new PostgresDialect({ pool: pgPool(bank.url, 2) }),
    plugins: [new CamelCasePlugin()]
  })
  t.teardown(() => kysely.destroy())
  await story(t, bank, fromKysely(kysely))
})

t.test('postgres.js with the transform camel', async t => {
  const bank = await postgresBank(t)
  const sql = postgres(bank.url, { max: 2, transform: postgres.camel, onnotice: () => {} })
  t.teardown(() => sql.end({ timeout: 5 }))
  await story(t, bank, sql)
})

async function story(t: Test, bank: Bank, db: Database<unknown> | PostgresJs): Promise<void> {
  const tokens: unknown[] = []
  const callback = createServer((request, response) => {
    tokens.push(request.headers['ackbox-callback-token'])
    request.resume()
    response.writeHead(200, { 'content-type': 'application/json' }).end('{"taskNo":"a"}')
  }).listen(0, '127.0.0.1')
  await once(callback, 'listening')
  t.teardown(() => callback.closeAllConnections())
  t.teardown(() => callback.close())

  const url = `http://127.0.0.1:${(callback.address() as AddressInfo).port}/callback`
  const points = receiver({ secrets: [secret], db, consumer: 'points', url })
  const at = databaseOf(db)
  const id = newId()
  const later = new Date(Date.now() + 90 * 86_400_000).toISOString()
  for (const more of [{}, { 'ackbox-forget-after': later }])
    await at.begin(native =>
      points.once(
        at.within(native),
        signed(id, { 'ackbox-callback-token': 'the token', ...more }),
        async () => {}
      )
    )
  const [received] = await bank.select('select forget_after from ackbox_received')
  t.same(received, { forget_after: new Date(later) })

  const stop = new AbortController()
  const running = points.run({ signal: stop.signal })
  await until('both receipts have left the table', async () => {
    return (await bank.select('select 1 from ackbox_receipt_outbox')).length === 0
  })
  stop.abort()
  await running
  t.same(tokens, ['the token', 'the token'])
}
