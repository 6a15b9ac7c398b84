import { readdirSync, readFileSync } from 'node:fs'
import path from 'node:path'
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
  revokeKey,
  scopes,
  type ApiKey,
  type NewKey,
  type Scope
} from '../../src/db/api-keys.ts'
import { writeAudit } from '../../src/db/audit.ts'
import type { Sql } from '../../src/db/pool.ts'
import { packageRoot } from '../../src/runtime/package.ts'
import { only } from '../support/only.ts'
import { page } from '../docs/markdown.ts'
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
    messageCodes: ['order.paid'],
    quotaId: made.id
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
    (await listApiKeys(reads.db, { limit: 10 })).apiKeys,
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

/** A key as the doorkeeper knows it. */
async function made(sql: Sql, key: Omit<NewKey, 'who'>): Promise<ApiKey> {
  const { key: secret } = await createKey(sql, { ...key, who: { name: key.maker?.id ?? 'cli' } })
  const found = await findKey(sql, hashKey(secret))
  if (!found) throw new Error('no such key')
  return found
}
const everything = { scopes: [...scopes], messageCodes: null }
const codeA = { scopes: ['ops:write', 'tasks:read'] satisfies Scope[], messageCodes: ['code.a'] }

t.test('a key cannot give the name of another key to the keys that it creates', async t => {
  const { sql } = await testDb(t)
  const full = await made(sql, { name: 'full', ...everything })
  const tenantA = await made(sql, { name: 'tenant-a', ...codeA, maker: full })
  const tenantB = await made(sql, { name: 'tenant-b', ...codeA, messageCodes: ['code.b'], maker: full })
  const twin = await made(sql, { name: 'twin', ...codeA })
  await revokeKey(sql, { id: (await made(sql, { name: 'former', ...codeA })).id, who: { name: 'cli' } })
  const taken = { code: 'API_KEY_NAME_TAKEN', pointer: '/name' }
  for (const name of ['full', 'Full', 'tenant-b', 'twin', 'former', 'local', 'CLI'])
    await t.rejects(made(sql, { name, ...codeA, maker: tenantA }), taken, name)
  t.equal((await sql`select from audit where detail->>'name' = 'Full'`).length, 0, 'a refusal leaves no row')

  const first = await made(sql, { name: 'pod', ...codeA, maker: tenantA })
  await made(sql, { name: 'pod', ...codeA, maker: tenantA })
  await made(sql, { name: 'tenant-a', ...codeA, maker: tenantA })
  await t.rejects(made(sql, { name: 'pod', ...codeA, maker: twin }), taken, 'nor that of a key of a key')
  await t.rejects(made(sql, { name: 'tenant-a', ...codeA, maker: first }), taken, 'nor that of its maker')

  // Operators rotate the key of anybody, unless a key of fewer rights has made one that is still live.
  for (const maker of [full, undefined]) {
    const by = maker ? { maker } : {}
    await made(sql, { name: 'tenant-b', ...codeA, messageCodes: ['code.b'], ...by })
    await t.rejects(made(sql, { name: 'pod', ...everything, ...by }), taken)
  }
  await sql`update api_key set revoked_at = now() where name = 'pod'`
  await made(sql, { name: 'pod', ...everything })
  t.equal(tenantB.quotaId, tenantB.id)
})

t.test('of two keys that ask at once for one name, one gets it', async t => {
  const { sql } = await testDb(t)
  const [a, b] = await Promise.all(['a', 'b'].map(name => made(sql, { name, ...codeA })))
  const asked = Array.from({ length: 20 }, (_, n) =>
    made(sql, { name: 'wanted', ...codeA, maker: (n % 3 ? a : b) as ApiKey })
  )
  await Promise.allSettled(asked)
  const makers = await sql`select distinct created_by_id from api_key where name = 'wanted'`
  t.equal(makers.length, 1)
})

t.test('a key shares its limits with the keys that it creates, and they with theirs', async t => {
  const { sql } = await testDb(t)
  const full = await made(sql, { name: 'full', ...everything })
  const tenant = await made(sql, { name: 'tenant', ...codeA, maker: full })
  const child = await made(sql, { name: 'child', ...codeA, maker: tenant })
  const grandchild = await made(sql, { name: 'grandchild', ...codeA, maker: child })
  t.same(
    [tenant, child, grandchild].map(one => one.quotaId),
    [tenant.id, tenant.id, tenant.id]
  )
  const robot = await made(sql, { name: 'robot', ...everything, maker: full })
  const grafana = await made(sql, { name: 'grafana', scopes: ['ops:read'], messageCodes: null, maker: robot })
  t.same(
    [full, robot, grafana].map(one => one.quotaId),
    [full.id, full.id, full.id]
  )
  const viewer = await made(sql, { name: 'viewer', scopes: ['ops:write'], messageCodes: null })
  const narrow = await made(sql, {
    name: 'narrow',
    scopes: ['ops:write'],
    messageCodes: ['code.a'],
    maker: viewer
  })
  t.equal(narrow.quotaId, viewer.id, 'only a key with all rights gives limits of their own')
})

t.test(
  'a key creates 100 live keys, those that its keys create included, and more once some are revoked',
  async t => {
    const { sql } = await testDb(t)
    const maker = await made(sql, { name: 'maker', ...codeA })
    const child = await made(sql, { name: 'child', ...codeA, maker })
    const asked = await Promise.allSettled(
      Array.from({ length: 150 }, (_, n) =>
        made(sql, { name: `n${n}`, ...codeA, maker: n % 2 ? maker : child })
      )
    )
    const refused = asked.filter(one => one.status === 'rejected')
    t.equal(refused.length, 51)
    t.ok(refused.every(one => (one.reason as { code?: unknown }).code === 'TOO_MANY_API_KEYS'))
    await made(sql, { name: 'free', ...codeA })
    await revokeKey(sql, { id: child.id, who: { name: 'cli' } })
    await made(sql, { name: 'next', ...codeA, maker })
    await t.rejects(made(sql, { name: 'last', ...codeA, maker }), { code: 'TOO_MANY_API_KEYS' })
  }
)

t.test('keys are listed page by page, each once, and only those that the caller may see', async t => {
  const { sql, reads } = await testDb(t)
  await Promise.all(Array.from({ length: 25 }, (_, n) => made(sql, { name: `n${n}`, ...codeA })))
  await made(sql, { name: 'other', ...codeA, messageCodes: ['code.b'] })
  await made(sql, { name: 'all', ...everything })
  const ids: string[] = []
  for (let cursor: string | undefined; ;) {
    const page = await listApiKeys(reads.db, { within: codeA, limit: 10, ...(cursor ? { cursor } : {}) })
    ids.push(...page.apiKeys.map(one => one.name))
    cursor = page.nextCursor
    if (cursor === undefined) break
  }
  t.same(ids.toSorted(), Array.from({ length: 25 }, (_, n) => `n${n}`).toSorted())
  t.same((await listApiKeys(reads.db, { limit: 10, cursor: 'nonsense' })).apiKeys, [])
})

t.test('the owner of the audit can remove old rows as the page on operations says', async t => {
  const { sql } = await testDb(t)
  const { blocks } = page(path.resolve(import.meta.dirname, '../../..'), 'docs/operations.md')
  const removal = blocks.find(block => block.text.includes('delete from audit'))?.text ?? ''
  await sql`insert into audit (who, what, at) values ('ann', 'old', now() - interval '3 years'), ('ann', 'new', now())`
  await t.rejects(sql`delete from audit`, /audit is append-only/)
  await sql.begin(tx => tx.unsafe(removal.replaceAll(/^(?:begin|commit);$/gm, '')))
  t.match(await sql`select what from audit`, [{ what: 'new' }])
  await t.rejects(sql`delete from audit`, /audit is append-only/)
})

t.test('the migration finds the creators of older keys in the audit', async t => {
  const { sql } = await testDb(t)
  const full = await made(sql, { name: 'full', ...everything })
  const tenant = await made(sql, { name: 'tenant', ...codeA, maker: full })
  const child = await made(sql, { name: 'child', ...codeA, maker: tenant })
  const robot = await made(sql, { name: 'robot', ...everything, maker: full })
  const wanted = await sql`select id, created_by_id, quota_id from api_key order by id`
  await sql`update api_key set created_by_id = null, quota_id = null`
  // As a process of the version before has written them: with the key of who created it.
  for (const [maker, key] of [
    [full, tenant],
    [tenant, child],
    [full, robot]
  ] as const)
    await sql`insert into audit (who, key_id, what, target) values ('x', ${maker.id}, 'key.created', ${key.id})`
  const folder = path.join(packageRoot, 'src/db/migrations')
  const file = readdirSync(folder).find(name => name.endsWith('_key_makers.sql')) ?? ''
  const statements = readFileSync(path.join(folder, file), 'utf8').split('--> statement-breakpoint')
  for (const statement of statements.filter(text => /UPDATE "api_key"/.test(text)))
    await sql.unsafe(statement)
  t.same([...(await sql`select id, created_by_id, quota_id from api_key order by id`)], [...wanted])
})
