import t from 'tap'
import { audit, createKey, findKey, hashKey, listKeys, revokeKey } from '../../src/db/keys.ts'
import { testDb } from '../support/postgres.ts'

t.test('a new key opens what it was made for, and the database does not know it', async t => {
  const { sql } = await testDb(t)
  const made = await createKey(sql, {
    name: 'shop',
    scopes: ['tasks:write'],
    messageCodes: ['order.paid'],
    who: 'cli'
  })
  t.match(made.key, /^ack_[A-Za-z0-9_-]{43}$/)
  t.same(await findKey(sql, hashKey(made.key)), {
    id: made.id,
    name: 'shop',
    scopes: ['tasks:write'],
    messageCodes: ['order.paid']
  })
  const [row] = await sql<{ text: string }[]>`select api_key::text || audit::text as text from api_key, audit`
  t.notMatch(row?.text, made.key.slice(4))
  t.match(row?.text, hashKey(made.key))
})

t.test('a revoked key is a stranger, and can be revoked once', async t => {
  const { sql } = await testDb(t)
  const { id, key } = await createKey(sql, {
    name: 'old',
    scopes: ['ops:read'],
    messageCodes: null,
    who: 'cli'
  })
  t.equal(await revokeKey(sql, { id, who: 'ann' }), true)
  t.equal(await findKey(sql, hashKey(key)), null)
  t.equal(await revokeKey(sql, { id, who: 'ann' }), false)
  t.match(await listKeys(sql), [
    { id, name: 'old', scopes: ['ops:read'], messageCodes: null, revokedAt: Date }
  ])
  t.equal(await findKey(sql, hashKey('ack_made-up')), null)
})

t.test('the audit tells who made, revoked and did what', async t => {
  const { sql } = await testDb(t)
  const { id } = await createKey(sql, { name: 'shop', scopes: ['ops:write'], messageCodes: null, who: 'cli' })
  await revokeKey(sql, { id, who: 'ann' })
  await revokeKey(sql, { id, who: 'bob' })
  await audit(sql, {
    who: 'ann',
    what: 'downstream.paused',
    target: 'warehouse',
    detail: { for: 'maintenance' }
  })
  const deeds = await sql`select who, what, target, detail from audit order by id`
  t.same(
    [...deeds],
    [
      {
        who: 'cli',
        what: 'key.created',
        target: id,
        detail: { name: 'shop', scopes: ['ops:write'], messageCodes: null }
      },
      { who: 'ann', what: 'key.revoked', target: id, detail: null },
      { who: 'ann', what: 'downstream.paused', target: 'warehouse', detail: { for: 'maintenance' } }
    ]
  )
})
