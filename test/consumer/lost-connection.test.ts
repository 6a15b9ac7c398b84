// The database ends the connection amid the work. The process lives, and the next attempt runs the work again.
import t, { type Test } from 'tap'
import { receiver } from '../../src/consumer/consumer.ts'
import { grant, mariadbBank, newId, postgresBank, secret, signed, type Bank } from './databases.ts'

t.setTimeout(600_000)

t.test('PostgreSQL', async t => {
  await story(t, await postgresBank(t), async ({ select }) => {
    await select(
      'select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()'
    )
  })
})

t.test('MariaDB', async t => {
  const bank = await mariadbBank(t)
  if (!bank) return
  await story(t, bank, async ({ select }) => {
    const others = await select(
      'select id from information_schema.processlist where id <> connection_id() and db = database()'
    )
    for (const { id } of others) await select(`kill ${Number(id)}`)
  })
})

async function story(t: Test, bank: Bank, endOthers: (bank: Bank) => Promise<void>): Promise<void> {
  const errors: unknown[] = []
  const points = receiver({
    secrets: [secret],
    db: bank.db,
    consumer: 'points',
    onError: err => errors.push(err)
  })
  let isFirst = true
  const handle = points.fetch(async native => {
    if (isFirst) {
      isFirst = false
      await endOthers(bank)
    }
    await bank.run(native, grant)
  })
  const id = newId()
  const ask = async (attempt: string): Promise<number> => {
    const { headers, body } = signed(id, { 'ackbox-attempt': attempt })
    return (await handle(new Request('http://shop.test/paid', { method: 'POST', headers, body }))).status
  }
  t.equal(await ask('1'), 500)
  t.equal(errors.length, 1)
  t.equal(await ask('2'), 200)
  t.equal(await bank.granted(), 7)
}
