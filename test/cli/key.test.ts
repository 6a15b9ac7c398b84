// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { findKey, hashKey } from '../../src/db/api-keys.ts'
import { only } from '../support/only.ts'
import { emptyDb, testDb } from '../support/postgres.ts'

const program = fileURLToPath(new URL('../../src/cli/ackbox.js', import.meta.url))
const secret = 'a secret of the test that is long enough'

async function key(url: string, ...args: string[]): Promise<{ code: number; out: string; err: string }> {
  return await keyWith({ DATABASE_URL: url }, ...args)
}

async function keyWith(more: Record<string, string>, ...args: string[]) {
  const env = { PATH: process.env['PATH'] ?? '', SECRET: secret, ...more }
  return await new Promise<{ code: number; out: string; err: string }>(resolve => {
    const child = execFile(process.execPath, [program, 'key', ...args], { env }, (_error, out, err) => {
      resolve({ code: child.exitCode ?? -1, out, err })
    })
  })
}

t.test('a key is made, shown once, listed without itself, and revoked', async t => {
  const { url, sql } = await testDb(t)
  const made = await key(url, 'create', 'shop', '--scopes', 'tasks:write,tasks:read', '--codes', 'order.paid')
  t.match(made, { code: 0, out: /^ack_[\w-]{43}\n$/, err: /shown only once/ })
  const stored = await findKey(sql, hashKey(made.out.trim()))
  t.match(stored, {
    name: 'shop',
    scopes: only('tasks:write', 'tasks:read'),
    messageCodes: only('order.paid')
  })
  const listed = await key(url, 'list')
  t.match(listed.out, /key_\w+ {2}shop {2}tasks:write,tasks:read {2}order\.paid {2}since /)
  t.notMatch(listed.out, /ack_/)
  const asJson = await key(url, 'list', '--json')
  t.match(JSON.parse(asJson.out), [
    {
      id: stored?.id,
      name: 'shop',
      scopes: only('tasks:write', 'tasks:read'),
      messageCodes: only('order.paid')
    }
  ])
  t.notMatch(asJson.out, /ack_|hash/)
  t.match(await key(url, 'revoke', stored?.id ?? ''), { code: 0, out: /is revoked/ })
  t.equal(await findKey(sql, hashKey(made.out.trim())), null)
  t.match(await key(url, 'revoke', stored?.id ?? ''), { code: 1, err: /already revoked/ })
})

t.test('the signing secret of a downstream is always the same, and another for each', async t => {
  const one = await key('postgres://127.0.0.1:1/none', 'secret', 'warehouse')
  t.match(one, { code: 0, out: /^whsec_\S+\n$/ }, 'no database is needed for it')
  t.equal((await key('postgres://127.0.0.1:1/none', 'secret', 'warehouse')).out, one.out)
  const other = await key('postgres://127.0.0.1:1/none', 'secret', 'points')
  t.match(other, { code: 0, out: /^whsec_\S+\n$/ })
  t.not(other.out, one.out)
})

const handler = (code: string, ...downstreams: string[]): string => `
  import { defineHandler, z } from 'ackbox/handler'
  console.log('a handler that talks'); setInterval(() => {}, 1000)
  const one = { transport: 'http', request: () => ({ url: 'http://127.0.0.1:1' }) }
  export default defineHandler({
    messageCode: '${code}', body: z.object({}), downstreams: { ${downstreams.map(name => `'${name}': one`).join()} }
  })`

t.test('a secret for a name that no handler has is printed all the same, with a word on it', async t => {
  const dir = t.testdir({
    'paid.mjs': handler('order.paid', 'points', 'ledger'),
    'moved.ts': handler('stock.moved', 'warehouse'),
    'own.mjs': handler('own.secret', 'bank').replace(
      "transport: 'http'",
      `transport: 'http', secrets: ['whsec_${'A'.repeat(32)}']`
    )
  })
  // If handlers kept the process open, or if it printed their output, `$(ackbox key secret …)` would break.
  const secretOf = (name: string) =>
    keyWith({ DATABASE_URL: 'postgres://127.0.0.1:1/none', HANDLERS_DIR: dir }, 'secret', name)
  const out = /^whsec_\S+\n$/
  const said = {
    warehouse: '',
    'check:stock.moved': '',
    'ackbox-alarm': '',
    bank: 'This secret is not in use: the handlers here set `secrets` for bank, and sign with those.\n',
    warehose:
      'No handler here has the downstream warehose. Did you mean warehouse? The known names are warehouse, bank, ledger, points.\n',
    check: 'No handler here has the downstream check. The known names are bank, ledger, points, warehouse.\n',
    'check:order.payd':
      'No handler here has the messageCode order.payd. Did you mean order.paid? The known names are order.paid, own.secret, stock.moved.\n'
  }
  const printed = []
  // In sequence: each process loads the handlers, and has 15 s for it.
  for (const name of Object.keys(said)) printed.push(await secretOf(name))
  for (const [at, [name, err]] of Object.entries(said).entries()) {
    t.match(printed[at], { code: 0, out }, name)
    t.equal(printed[at]?.err, err, name)
  }
})

t.test('where no handlers load, a secret is printed without a word on its name', async t => {
  const url = 'postgres://127.0.0.1:1/none'
  for (const HANDLERS_DIR of [t.testdir({ 'broken.mjs': 'process.exit(3)' }), '/nowhere'])
    t.match(await keyWith({ DATABASE_URL: url, HANDLERS_DIR }, 'secret', 'points'), {
      code: 0,
      out: /^whsec_\S+\n$/,
      err: /^$/
    })
})

t.test('what makes no sense is said in a line, with what would', async t => {
  const url = 'postgres://127.0.0.1:1/none'
  const wrong: [args: string[], err: RegExp][] = [
    [['make'], /Unknown command: make/],
    [['create'], /cannot be used|needs a NAME/],
    [['create', 'a', 'b'], /^key create does not take b\n/],
    [['list', 'extra'], /^key list does not take extra\n/],
    [['secret', 'x', '--scopes', 'y'], /^key secret does not take --scopes\n/],
    [['list', '--color'], /--color/],
    [['secret'], /^The name of the downstream is missing/],
    [
      ['secret', 'order.paid'],
      /^"order\.paid" is not the name of a downstream\. It is a key below `downstreams`/
    ],
    [['list'], /^ackbox: PostgreSQL cannot be used \(.*ECONNREFUSED/]
  ]
  for (const [args, err] of wrong) t.match(await key(url, ...args), { code: 1, out: '', err }, args.join(' '))
  t.match(await key(url, '--help'), { code: 0, out: /npm run key -- create/ })
})

t.test('a PostgreSQL that refuses says why, in a line', async t => {
  const { url, sql } = await testDb(t)
  const role = `stranger_${process.pid}`
  await sql.unsafe(`create role ${role} login password 'p'`)
  t.teardown(() => sql.unsafe(`drop role ${role}`))
  const as = (user: string, password: string, more: Partial<URL> = {}): string =>
    String(Object.assign(new URL(url), { username: user, password, ...more }))
  const refused: [url: string, said: RegExp][] = [
    [as(role, 'wrong'), /^ackbox: PostgreSQL refuses the connection \(password .*\): check DATABASE_URL\n$/],
    [
      as(role, 'p', { pathname: '/nowhere' }),
      /^ackbox: PostgreSQL refuses the connection \(.*"nowhere".*\n$/
    ],
    [as(role, 'p'), /^ackbox: the user of DATABASE_URL may not do this \(permission denied .*\n$/],
    [await emptyDb(t), /^ackbox: the database has no tables yet \(.*run npm run migrate .*\n$/]
  ]
  for (const [at, err] of refused) t.match(await key(at, 'list'), { code: 1, out: '', err })
})

t.test('a wrong scope or code is refused before a key is made', async t => {
  const { url, sql } = await testDb(t)
  t.match(await key(url, 'create', 'shop'), { code: 1, err: /--scopes/ })
  t.match(await key(url, 'create', 'shop', '--scopes', 'tasks:eat'), {
    code: 1,
    err: /Unknown scope: tasks:eat/
  })
  t.match(await key(url, 'create', 'shop', '--scopes', 'ops:read', '--codes', 'a b'), {
    code: 1,
    err: /Invalid messageCode: a b/
  })
  for (const none of ['', ' , '])
    t.match(
      await key(url, 'create', 'shop', '--scopes', 'ops:read', '--codes', none),
      { code: 1, out: '', err: /^--codes names no messageCode\./ },
      'a variable that is not set makes no key that may do nothing'
    )
  t.match(await key(url, 'create', 'a\nb', '--scopes', 'ops:read'), { code: 1, err: /NAME/ })
  t.match(await sql`select count(*) from api_key`, [{ count: 0 }])
})
