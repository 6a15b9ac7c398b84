import t from 'tap'
import {
  createKey,
  createSession,
  findKey,
  hashKey,
  keyFinder,
  listApiKeys,
  mostSessions,
  openKeyFinder,
  revokeKey
} from '../../src/db/api-keys.ts'
import { writeAudit } from '../../src/db/audit.ts'
import { only } from '../support/only.ts'
import { testDb } from '../support/postgres.ts'

t.test('a new key opens what it was made for, and the database does not know it', async t => {
  const { sql } = await testDb(t)
  const made = await createKey(sql, {
    name: 'shop',
    scopes: ['tasks:write'],
    messageCodes: ['order.paid'],
    who: { name: 'cli' }
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
  const { sql, reads } = await testDb(t)
  const { id, key } = await createKey(sql, {
    name: 'old',
    scopes: ['ops:read'],
    messageCodes: null,
    who: { name: 'cli' }
  })
  t.equal(await revokeKey(sql, { id, who: { name: 'ann' } }), true)
  t.equal(await findKey(sql, hashKey(key)), null)
  t.equal(await revokeKey(sql, { id, who: { name: 'ann' } }), false)
  t.match(
    await listApiKeys(reads.db),
    only({ id, name: 'old', scopes: only('ops:read'), messageCodes: null, revokedAt: Date })
  )
  t.equal(await findKey(sql, hashKey('ack_made-up')), null)
})

t.test('the audit tells who made, revoked and did what', async t => {
  const { sql } = await testDb(t)
  const { id } = await createKey(sql, {
    name: 'shop',
    scopes: ['ops:write'],
    messageCodes: null,
    who: { name: 'cli' }
  })
  await revokeKey(sql, { id, who: { name: 'ann' } })
  await revokeKey(sql, { id, who: { name: 'bob' } })
  await writeAudit(sql, {
    who: { name: 'ann' },
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

t.test(
  'a flood of made-up keys is no flood of queries, and each who asks gets an answer of his own',
  async t => {
    const { sql } = await testDb(t)
    const made = await Promise.all(
      ['a', 'b'].map(name =>
        createKey(sql, { name, scopes: ['tasks:read'], messageCodes: null, who: { name: 'cli' } })
      )
    )
    const find = openKeyFinder(sql)
    const asked = made.flatMap(({ key }, n) => [hashKey(`ack_guess${n}`), hashKey(key)])
    t.match(await Promise.all(asked.map(find)), [null, { name: 'a' }, null, { name: 'b' }])

    const statements: number[] = []
    let go = (): void => {}
    const held = new Promise<void>(resolve => {
      go = resolve
    })
    const slow = keyFinder(async hashes => {
      statements.push(hashes.length)
      await held
      return hashes.map(() => null)
    })
    const answers: Promise<unknown>[] = []
    for (let turn = 0; turn < 50; turn++) {
      for (let n = 0; n < 100; n++) answers.push(slow(`${turn} ${n}`))
      await new Promise(resolve => setImmediate(resolve))
    }
    t.ok(statements.length <= 3, `${statements.length} statements at once`)
    go()
    t.equal((await Promise.all(answers)).length, 5_000)
    t.ok(Math.max(...statements) <= 1_000)
    t.ok(statements.length <= 10, `${statements.length} statements in all`)
  }
)

t.test('where no key can be looked up, each who asked hears so', async t => {
  const find = keyFinder(async () => {
    throw new Error('away')
  })
  const answers = await Promise.allSettled(['a', 'b', 'c'].map(find))
  t.same(
    answers.map(({ status }) => status),
    ['rejected', 'rejected', 'rejected']
  )
})

t.test('a key has so many sessions, and a further one ends the oldest', async t => {
  const { sql } = await testDb(t)
  const make = (name: string) =>
    createKey(sql, { name, scopes: ['ops:read'], messageCodes: null, who: { name: 'cli' } })
  const [shop, other] = [await make('shop'), await make('other')]
  const signIn = (hash: string, { key } = shop) => createSession(sql, { hash, keyHash: hashKey(key) })
  t.equal(await signIn('of another', other), true)
  for (let n = 0; n < mostSessions + 3; n++) t.equal(await signIn(String(n)), true)
  const left = await sql<{ hash: string }[]>`select hash from session order by created_at`
  t.same(
    left.map(({ hash }) => hash),
    ['of another', ...Array.from({ length: mostSessions }, (_, n) => String(n + 3))]
  )
})
