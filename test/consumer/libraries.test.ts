// `once` in the transaction of every library that has an adapter.
import t, { type Test } from 'tap'
import { receiver } from '../../src/consumer/consumer.ts'
import { onMariadb, onPostgres, type Library } from '../producer/libraries.ts'
import { grant, mariadbBank, newId, postgresBank, secret, signed, type Bank } from './databases.ts'

t.setTimeout(600_000)

t.test('PostgreSQL', async t => {
  await each(t, await postgresBank(t), onPostgres)
})

t.test('MariaDB', async t => {
  const bank = await mariadbBank(t)
  if (bank) await each(t, bank, onMariadb)
})

async function each(t: Test, bank: Bank, libraries: readonly Library[]): Promise<void> {
  const points = receiver({ secrets: [secret], db: bank.db, consumer: 'points', url: 'http://127.0.0.1:1' })
  for (const { name, open } of libraries)
    await t.test(name, async t => {
      const library = await open(bank.url)
      t.teardown(() => library.close())
      const id = newId()
      const later = new Date(Date.now() + 60 * 86_400_000).toISOString()
      const handle = (attempt: string, more: Record<string, string> = {}) =>
        library.transaction(({ tx, run }) =>
          points.once(
            tx,
            signed(id, { 'ackbox-attempt': attempt, 'ackbox-callback-token': 'token', ...more }),
            async () => {
              await run(grant)
              return { granted: 7, text: `'"\\ 支付` }
            }
          )
        )
      const result = { granted: 7, text: `'"\\ 支付` }
      const before = await bank.granted()
      t.same(await handle('1'), { first: true, result })
      t.same(await handle('2'), { first: false, result })
      t.same(await handle('3', { 'ackbox-forget-after': later }), { first: false, result })
      t.equal((await bank.granted()) - before, 7)
      const receipts = await bank.select('select receipt from ackbox_receipt_outbox')
      t.equal(receipts.length, 3)
      await bank.select('delete from ackbox_receipt_outbox')
      for (const [what, outside] of Object.entries(library.outside))
        await t.rejects(
          points.once(outside, signed(newId()), () => Promise.resolve()),
          { name: 'AdapterError' },
          what
        )
      await bank.select("update ackbox_received set forget_after = '2020-01-01'")
      const [db] = Object.values(library.outside)
      if (db) await receiver({ secrets: [secret], db, consumer: 'points' }).prune()
      t.same(await bank.select('select webhook_id from ackbox_received'), [], 'the old row is pruned')
    })
}
