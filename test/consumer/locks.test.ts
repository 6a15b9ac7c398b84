// An open transaction in a receiver's MariaDB does not block others, and they do not block it. In PostgreSQL, pruning waits for it.
import t from 'tap'
import { receiver } from '../../src/consumer/consumer.ts'
import { receiptSink } from '../interop/receipt-sink.ts'
import { until } from '../support/until.ts'
import { door, mariadbBank, newId, postgresBank, secret, signed, type Bank } from './databases.ts'

t.setTimeout(600_000)

const token = { 'ackbox-callback-token': 'token-1' }

async function stage(bank: Bank, url: string) {
  // A lock wait fails soon. The longer default would only make a failing test slower.
  await bank.select('set global innodb_lock_wait_timeout = 2')
  const errors: unknown[] = []
  const points = receiver({
    secrets: [secret],
    db: bank.db,
    consumer: 'points',
    url,
    onError: err => errors.push(err)
  })
  const handle = (after: () => Promise<void> = async () => {}) =>
    bank.db.begin(async native => {
      await points.once(bank.db.within(native), signed(newId(), token), async () => {})
      await after()
    })
  return { points, handle, errors }
}

t.test('a transaction that is still open keeps no receipt of others from being sent', async t => {
  const bank = await mariadbBank(t)
  if (!bank) return
  const sink = await receiptSink(t)
  const { points, handle, errors } = await stage(bank, sink.url)
  for (let n = 0; n < 10; n++) await handle()
  const [written, end] = [door(), door()]
  const open = handle(async () => {
    written.open()
    await end.opened
  })
  await written.opened
  const stop = new AbortController()
  const running = points.run({ signal: stop.signal })
  await until('ten receipts are sent', () => sink.receipts.length === 10 || errors.length > 0)
  t.same(errors, [])
  end.open()
  await open
  await until('the last one is sent', () => sink.receipts.length === 11 || errors.length > 0)
  stop.abort()
  await running
})

t.test('while receipts are claimed, others write theirs', async t => {
  const bank = await mariadbBank(t)
  if (!bank) return
  const { handle } = await stage(bank, 'http://127.0.0.1:1')
  for (let n = 0; n < 3; n++) await handle()
  const wanting = receiver({
    secrets: [secret],
    db: {
      ...bank.db,
      // Runs between the read and the commit of a claim.
      begin: work =>
        bank.db.begin(async native => {
          const result = await work(native)
          await t.resolves(handle(), 'a receipt is written')
          stop.abort()
          return result
        })
    },
    consumer: 'points',
    url: 'http://127.0.0.1:1',
    onError: () => {}
  })
  const stop = new AbortController()
  await wanting.run({ signal: stop.signal })
  t.equal((await bank.select('select 1 from ackbox_receipt_outbox')).length, 4)
})

t.test('pruning waits for no transaction that is still open', async t => {
  const bank = await mariadbBank(t)
  if (!bank) return
  const { points, handle } = await stage(bank, 'http://127.0.0.1:1')
  for (let n = 0; n < 5; n++) await handle()
  await bank.select('update ackbox_received set forget_after = utc_timestamp() - interval 2 day')
  await bank.select('update ackbox_receipt_outbox set created_at = utc_timestamp() - interval 91 day')
  await handle(async () => {
    await t.resolves(points.prune())
    t.same(await bank.select('select 1 from ackbox_received'), [])
    t.same(await bank.select('select 1 from ackbox_receipt_outbox'), [])
  })
  t.equal((await bank.select('select 1 from ackbox_received')).length, 1)
})

t.test('pruning keeps a row whose time a repeat extends meanwhile', async t => {
  const bank = await postgresBank(t)
  const points = receiver({ secrets: [secret], db: bank.db, consumer: 'points' })
  const id = newId()
  const handle = (after: () => Promise<void> = async () => {}) =>
    bank.db.begin(async native => {
      const handled = await points.once(bank.db.within(native), signed(id), async () => {})
      await after()
      return handled
    })
  await handle()
  await bank.select("update ackbox_received set forget_after = now() - interval '2 days'")
  const [extended, end] = [door(), door()]
  const repeat = handle(async () => {
    extended.open()
    await end.opened
  })
  await extended.opened
  const pruning = points.prune()
  await until('it waits for the row', async () => {
    const waiting = await bank.select(
      "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    )
    return waiting.length === 1
  })
  end.open()
  t.match(await repeat, { first: false })
  await pruning
  t.match(await handle(), { first: false }, 'it is still known')
})
