// Each delivery takes effect once in the receiver's own database, even if requests are repeated, concurrent or late.
import t, { type Test } from 'tap'
import { Webhook } from 'standardwebhooks'
import {
  AdapterError,
  InvalidSignature,
  receiver,
  TooOld,
  type Database,
  type Message
} from '../../src/consumer/consumer.ts'
import {
  door,
  grant,
  mariadbBank,
  newId,
  postgresBank,
  secret,
  signed,
  snapshotIsolation,
  type Bank
} from './databases.ts'

t.setTimeout(600_000)

t.test('PostgreSQL', async t => {
  await stories(t, await postgresBank(t))
})

t.test('MariaDB', async t => {
  const bank = await mariadbBank(t)
  if (bank) await stories(t, bank)
})

async function stories(t: Test, bank: Bank): Promise<void> {
  const { db } = bank
  const points = receiver({ secrets: [secret], db, consumer: 'points' })
  const handle = (message: Message, work: (native: unknown) => Promise<unknown> = pay, at = points) =>
    db.begin(native => at.once(db.within(native), message, () => work(native)))
  const pay = async (native: unknown) => {
    await bank.run(native, grant)
    return { granted: 7 }
  }
  /** The points that `work` granted. */
  const grantedBy = async (work: () => Promise<unknown>): Promise<number> => {
    const before = await bank.granted()
    await work()
    return (await bank.granted()) - before
  }
  const isPostgres = db.dialect === 'postgres'

  await t.test('a repeat does nothing, and has the result of the first', async t => {
    const id = newId()
    const granted = await grantedBy(async () => {
      t.same(await handle(signed(id)), { first: true, result: { granted: 7 } })
      t.same(await handle(signed(id, { 'ackbox-attempt': '2' })), { first: false, result: { granted: 7 } })
    })
    t.equal(granted, 7)
  })

  await t.test('a work without a result', async t => {
    const message = signed(newId())
    t.same(await handle(message, async () => {}), { first: true, result: undefined })
    t.same(await handle(message), { first: false, result: undefined })
  })

  await t.test('a result that looks like the mark of an unfinished work is one all the same', async t => {
    const message = signed(newId())
    const result = 'unfinished 3 items'
    t.same(await handle(message, async () => result), { first: true, result })
    t.same(await handle(message), { first: false, result })
  })

  await t.test('the first has what JSON keeps of its result, as its repeats have', async t => {
    const message = signed(newId())
    const result = { at: '2026-11-20T10:00:00.000Z', price: null }
    const work = async () => ({ at: new Date(result.at), price: Number.NaN, none: undefined })
    t.strictSame(await handle(message, work), { first: true, result })
    t.strictSame(await handle(message, work), { first: false, result })
  })

  await t.test('another consumer in the same database handles it as well', async t => {
    const message = signed(newId())
    const stock = receiver({ secrets: [secret], db, consumer: 'stock' })
    t.match(await handle(message), { first: true })
    t.match(await handle(message, pay, stock), { first: true })
  })

  await t.test('what fails is rolled back, and comes again', async t => {
    const message = signed(newId())
    const granted = await grantedBy(async () => {
      await t.rejects(
        handle(message, async native => {
          await pay(native)
          throw new Error('after the work')
        }),
        { message: 'after the work' }
      )
      t.match(await handle(message), { first: true })
    })
    t.equal(granted, 7)
  })

  await t.test(
    'an error that is swallowed, and its transaction committed, is not taken for done',
    async t => {
      const message = signed(newId())
      await db.begin(async native => {
        await points.once(db.within(native), message, () => Promise.reject(new Error('no'))).catch(() => {})
      })
      t.match(await handle(message), { first: true })
    }
  )

  await t.test('twenty at once are one, and the others wait for its result', async t => {
    const message = signed(newId())
    const granted = await grantedBy(async () => {
      const all = await Promise.all(Array.from({ length: 20 }, () => handle(message)))
      t.equal(all.filter(one => one.first).length, 1)
      t.same(new Set(all.map(one => JSON.stringify(one.result))), new Set(['{"granted":7}']))
    })
    t.equal(granted, 7)
  })

  await t.test('the second waits for the end of the first: it is new when that one fails', async t => {
    const message = signed(newId())
    const [gate, begun] = [door(), door()]
    const granted = await grantedBy(async () => {
      const first = handle(message, async native => {
        await pay(native)
        begun.open()
        await gate.opened
        throw new Error('no')
      })
      await begun.opened
      const second = handle(message)
      gate.open()
      await t.rejects(first, { message: 'no' })
      t.match(await second, { first: true })
    })
    t.equal(granted, 7)
  })

  await t.test('a transaction that has looked before sees what was committed since, or fails', async t => {
    const id = newId()
    const repeatable = isPostgres ? 'set transaction isolation level repeatable read' : 'select 1'
    const granted = await grantedBy(async () => {
      const late = db.begin(async native => {
        await bank.run(native, repeatable)
        await bank.run(native, 'select granted from points')
        await handle(signed(id))
        return await points.once(db.within(native), signed(id), () => pay(native))
      })
      if (isPostgres) await t.rejects(late, { code: '40001' })
      else if ((await snapshotIsolation(bank)) === 'ON') await t.rejects(late, { code: 'ER_CHECKREAD' })
      else t.same(await late, { first: false, result: { granted: 7 } })
    })
    t.equal(granted, 7)
  })

  await t.test('a wrong signature is told before any statement', async t => {
    const asked: string[] = []
    const seen: Database<unknown> = {
      ...db,
      query: async text => (asked.push(text), []),
      begin: async () => Promise.reject(new Error('no transaction was to begin'))
    }
    const { headers, body } = signed(newId())
    const wrong: Record<string, Message> = {
      'another body': { headers, body: Buffer.from('{"points":70}') },
      'another id': { headers: { ...headers, 'webhook-id': newId() }, body },
      'another time': { headers: { ...headers, 'webhook-timestamp': '1' }, body },
      'no signature': { headers: { ...headers, 'webhook-signature': '' }, body },
      'half a signature': {
        headers: { ...headers, 'webhook-signature': headers['webhook-signature']?.slice(0, -4) },
        body
      },
      'nothing at all': {}
    }
    const at = receiver({ secrets: [secret], db: seen, consumer: 'points' })
    for (const [name, message] of Object.entries(wrong))
      await t.rejects(
        at.once(seen, message, () => Promise.resolve()),
        InvalidSignature,
        name
      )
    t.same(asked, [])
  })

  await t.test('two secrets during a rotation', async t => {
    const next = 'whsec_' + Buffer.from('another secret of thirty-two b..').toString('base64')
    const both = receiver({ secrets: [next, secret], db, consumer: 'points' })
    t.match(await handle(signed(newId()), pay, both), { first: true }, 'the old one')
    const { headers, body } = signed(newId())
    const at = new Date(Number(headers['webhook-timestamp']) * 1_000)
    const newer = new Webhook(next).sign(headers['webhook-id'] ?? '', at, body.toString())
    headers['webhook-signature'] = `v1,AAAA ${newer}`
    t.match(await handle({ headers, body }, pay, both), { first: true }, 'the new one, beside another')
  })

  await t.test('a pool, or a connection outside a transaction, is refused', async t => {
    await t.rejects(
      points.once(db, signed(newId()), () => Promise.resolve()),
      AdapterError
    )
  })

  await t.test('a database without the tables is told where they are', async t => {
    await bank.select('alter table ackbox_received rename to hidden')
    await t.rejects(handle(signed(newId())), {
      name: 'AdapterError',
      message: /ackbox consumer --print-ddl (postgres|mysql)/
    })
    await bank.select('alter table hidden rename to ackbox_received')
  })

  await t.test(
    'a message of a queue is taken at any age, or with maxAgeMs only while its row is kept',
    async t => {
      const aged = receiver({ secrets: [secret], db, consumer: 'aged', maxAgeMs: 3 * 86_400_000 })
      const sent = (id: string, daysAgo: number): Message => {
        const at = new Date(Date.now() - daysAgo * 86_400_000)
        // The header is not signed: somebody who may write to the queue sets it.
        const { headers, body } = signed(id, { 'ackbox-forget-after': new Date().toISOString() })
        const signature = new Webhook(secret).sign(id, at, body.toString())
        const time = String(Math.floor(at.getTime() / 1_000))
        return { headers: { ...headers, 'webhook-timestamp': time, 'webhook-signature': signature }, body }
      }
      const id = newId()
      t.match(await handle(sent(id, 1), pay, aged), { first: true })
      const inADay = isPostgres ? "now() + interval '1 day'" : 'utc_timestamp() + interval 1 day'
      t.equal(
        (
          await bank.select(
            `select 1 from ackbox_received where webhook_id = '${id}' and forget_after > ${inADay}`
          )
        ).length,
        1,
        'the row stays as long as the message would be taken, whatever the header'
      )
      t.match(await handle(sent(id, 1), pay, aged), { first: false })
      await t.rejects(handle(sent(newId(), 4), pay, aged), TooOld)
      t.match(await handle(sent(newId(), 4)), { first: true }, 'by default at any age')
    }
  )

  await t.test('rows are forgotten a day after Ackbox sends no more, and not before', async t => {
    const hours = (count: number) => new Date(Date.now() + count * 3_600_000).toISOString()
    const ids = { old: newId(), late: newId(), kept: newId() }
    await handle(signed(ids.old))
    const past = isPostgres ? "now() - interval '25 hours'" : 'utc_timestamp() - interval 25 hour'
    await bank.select(`update ackbox_received set forget_after = ${past} where webhook_id = '${ids.old}'`)
    await handle(signed(ids.late, { 'ackbox-forget-after': hours(-11) }))
    const late = past.replace('25', '23')
    await bank.select(`update ackbox_received set forget_after = ${late} where webhook_id = '${ids.late}'`)
    await handle(signed(ids.kept))
    await points.prune()
    const rows = await bank.select('select webhook_id from ackbox_received')
    const left = rows.map(row => row['webhook_id'])
    t.notOk(left.includes(ids.old))
    t.ok(left.includes(ids.late))
    t.ok(left.includes(ids.kept))
    await t.rejects(handle(signed(newId(), { 'ackbox-forget-after': hours(-13) })), TooOld)
  })

  await t.test('a redelivery is remembered until its own time', async t => {
    const id = newId()
    await handle(signed(id))
    const far = new Date(Date.now() + 60 * 86_400_000)
    const again = { 'ackbox-round': '2', 'ackbox-forget-after': far.toISOString() }
    t.match(await handle(signed(id, again)), { first: false, result: { granted: 7 } })
    t.match(await handle(signed(id)), { first: false })
    const seconds = isPostgres
      ? 'extract(epoch from forget_after)'
      : "timestampdiff(second, '1970-01-01', forget_after)"
    const [row] = await bank.select(
      `select ${seconds} as until from ackbox_received where webhook_id = '${id}'`
    )
    t.equal(Math.floor(Number(row?.['until'])), Math.floor(far.getTime() / 1_000))
  })
}

t.test('what can never work is told when the receiver is made', t => {
  const db = { dialect: 'postgres' } as unknown as Database<unknown>
  t.throws(() => receiver({ secrets: [], db, consumer: 'points' }), AdapterError)
  for (const secret of ['', 'whsec_', 'whsec_?', 'whsec_c2hvcnQ='])
    t.throws(() => receiver({ secrets: [secret], db, consumer: 'points' }), AdapterError)
  t.throws(() => receiver({ secrets: [secret], db, consumer: '' }), AdapterError)
  t.throws(() => receiver({ secrets: [secret], db, consumer: 'points', url: 'ackbox' }), AdapterError)
  t.throws(() => receiver({ secrets: [secret], db: {} as typeof db, consumer: 'points' }), AdapterError)
  t.end()
})
