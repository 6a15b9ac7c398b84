import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import t from 'tap'
import { findKey, hashKey } from '../../src/db/keys.ts'
import { testDb } from '../support/postgres.ts'

const program = fileURLToPath(new URL('../../src/cli/ackbox.js', import.meta.url))
const secret = 'a secret of the test that is long enough'

async function key(url: string, ...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const env = { PATH: process.env['PATH'] ?? '', DATABASE_URL: url, SECRET: secret }
  return await new Promise(resolve => {
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
  t.match(stored, { name: 'shop', scopes: ['tasks:write', 'tasks:read'], messageCodes: ['order.paid'] })
  const listed = await key(url, 'list')
  t.match(listed.out, /key_\w+ {2}shop {2}tasks:write,tasks:read {2}order\.paid {2}since /)
  t.notMatch(listed.out, /ack_/)
  t.match(await key(url, 'revoke', stored?.id ?? ''), { code: 0, out: /is revoked/ })
  t.equal(await findKey(sql, hashKey(made.out.trim())), null)
  t.match(await key(url, 'revoke', stored?.id ?? ''), { code: 1, err: /already revoked/ })
})

t.test('the signing secret of a downstream is always the same, and another for each', async t => {
  const one = await key('postgres://127.0.0.1:1/none', 'secret', 'warehouse')
  t.match(one, { code: 0, out: /^whsec_\S+\n$/ }, 'no database is needed for it')
  t.equal((await key('postgres://127.0.0.1:1/none', 'secret', 'warehouse')).out, one.out)
  t.not((await key('postgres://127.0.0.1:1/none', 'secret', 'points')).out, one.out)
})

t.test('what makes no sense is said in a line, with what would', async t => {
  const url = 'postgres://127.0.0.1:1/none'
  const wrong: [args: string[], err: RegExp][] = [
    [['make'], /Unknown command: make/],
    [['create'], /cannot be reached|needs a NAME/],
    [['create', 'a', 'b'], /Unexpected argument: b/],
    [['list', '--color'], /--color/],
    [['secret', 'A b'], /name of the downstream is missing/],
    [['list'], /cannot be reached/]
  ]
  for (const [args, err] of wrong) t.match(await key(url, ...args), { code: 1, out: '', err }, args.join(' '))
  t.match(await key(url), { code: 0, out: /npm run key -- create/ })
  t.match(await key(url, '--help'), { code: 0, out: /npm run key -- create/ })
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
  t.match(await key(url, 'create', 'a\nb', '--scopes', 'ops:read'), { code: 1, err: /NAME/ })
  t.match(await sql`select count(*) from api_key`, [{ count: 0 }])
})
