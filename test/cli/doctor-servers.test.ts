// The doctor against real servers with wrong settings, and the warnings about them when the service starts.
// Takes long: npm run test:long.
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import path from 'node:path'
import { Redis } from 'ioredis'
import postgres from 'postgres'
import t from 'tap'
import { createKey } from '../../src/db/api-keys.ts'
import { writeNode } from '../../src/db/cluster.ts'
import { lyingProxy } from '../support/proxy.ts'
import { emptyDb, testDb } from '../support/postgres.ts'
import { ownRedis } from '../support/redis.ts'
import { keepNodes } from '../support/rows.ts'
import { folder, plainNode, secret, start } from '../support/service.ts'
import { stage } from '../support/stage.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

async function run(name: string, env: Record<string, string>): Promise<{ code: number; out: string }> {
  return await new Promise(resolve => {
    const child = execFile(
      plainNode[0],
      [...plainNode.slice(1), program, name],
      { env: { PATH: process.env['PATH'] ?? '', SECRET: secret, ...env } },
      (_error, out, err) => resolve({ code: child.exitCode ?? -1, out: out + err })
    )
  })
}

/** The doctor's output for one check: the level, the finding, and the remedy on the next line. */
function said(out: string, check: string): { level?: string; found?: string; remedy?: string } {
  const lines = out.split('\n')
  const at = lines.findIndex(line => line.slice(6).startsWith(`${check} `))
  const [, level, found] = /^(\S+) +.{30} {2}(.*)$/.exec(lines[at] ?? '') ?? []
  const [, remedy] = /^ +-> (.*)$/.exec(lines[at + 1] ?? '') ?? []
  return {
    ...(level === undefined ? {} : { level }),
    ...(found === undefined ? {} : { found }),
    ...(remedy === undefined ? {} : { remedy })
  }
}

t.test('a PostgreSQL without fsync and full_page_writes is a thing to fix, each with its line', async t => {
  // The PostgreSQL of the tests runs without both.
  const { url } = await testDb(t)
  const { code, out } = await run('doctor', { DATABASE_URL: url })
  t.equal(code, 1)
  for (const setting of ['fsync', 'full_page_writes'])
    t.match(said(out, `PostgreSQL ${setting}`), {
      level: 'FIX',
      found: /crash/,
      remedy: `alter system set ${setting} = on; select pg_reload_conf();`
    })
  t.match(said(out, 'PostgreSQL synchronous_commit'), { level: 'OK' })
})

t.test('a server whose default is synchronous_commit = off does not take away the promise', async t => {
  const { url, sql } = await testDb(t)
  await sql.unsafe(`alter database ${new URL(url).pathname.slice(1)} set synchronous_commit = off`)
  const { out } = await run('doctor', { DATABASE_URL: url })
  t.match(said(out, 'PostgreSQL synchronous_commit'), { level: 'OK', found: 'on in our connections' })
})

t.test(
  'something in between that turns synchronous_commit off, and a clock that is off, are told',
  async t => {
    const { url } = await testDb(t)
    const lie = (answer: string): string =>
      answer
        // oxlint-disable-next-line eslint/no-control-regex -- lengths are bytes
        .replace(/(synchronous_commit\0\0\0)\x02on/, '$1\x02no')
        // Adds an hour to the only answer that consists of a time.
        .replace(
          // oxlint-disable-next-line eslint/no-control-regex -- the same
          /(\0\x01\0\0\0.\d{4}-\d\d-\d\d )(\d\d)/s,
          (_, head: string, hour: string) => head + String((Number(hour) + 1) % 24).padStart(2, '0')
        )
    const lied = new URL(url)
    lied.port = String(await lyingProxy(t, new URL(url), lie))
    const { out } = await run('doctor', { DATABASE_URL: String(lied) })
    t.match(said(out, 'PostgreSQL synchronous_commit'), { level: 'FIX', remedy: /pooler/ })
    t.match(said(out, 'Clock'), {
      level: 'WARN',
      found: /\d+\.\d s (behind|ahead of)/,
      remedy: /timedatectl set-ntp/
    })
  }
)

t.test('a Redis that evicts is a thing to fix, and the line that is given fixes it', async t => {
  const redis = await ownRedis(t, '--maxmemory-policy', 'allkeys-lru')
  if (!redis) return
  const env = { DATABASE_URL: (await testDb(t)).url, REDIS_URL: redis.url }
  const before = (await run('doctor', env)).out
  t.match(said(before, 'Redis eviction'), {
    level: 'FIX',
    found: /allkeys-lru/,
    remedy: /redis-cli config set/
  })
  t.match(said(before, 'Redis persistence'), { level: 'WARN' })
  const client = new Redis(redis.url)
  t.teardown(() => client.disconnect())
  for (const check of ['Redis eviction', 'Redis persistence']) {
    const [, name = '', value = ''] = /config set (\S+) (\S+);/.exec(said(before, check).remedy ?? '') ?? []
    t.equal(await client.config('SET', name, value), 'OK', check)
  }
  const after = (await run('doctor', env)).out
  for (const check of ['Redis eviction', 'Redis persistence'])
    t.match(said(after, check), { level: 'OK' }, `${check}, once done as told`)
  await redis.kill()
  t.match(said((await run('doctor', env)).out, 'Redis'), { level: 'FIX', found: /ECONNREFUSED/ })
})

t.test('targets that may not be reached are told before a task is sent to them', async t => {
  const dir = folder(t)
  const handler = (code: string, ...urls: string[]): void => {
    const to = urls.map(
      (text, at) => `d${at}: { transport: 'http', request: () => ({ url: url\`${text}/\` }) }`
    )
    writeFileSync(
      path.join(dir, `${code}.mjs`),
      `import { defineHandler, env, url, z } from 'ackbox/handler'
       export default defineHandler({ messageCode: '${code}', body: z.any(), downstreams: { ${to.join()} } })`
    )
  }
  handler('some', '${env.WAREHOUSE_URL}', 'https://93.184.215.14')
  const env = {
    DATABASE_URL: (await testDb(t)).url,
    HANDLERS_DIR: dir,
    WAREHOUSE_URL: 'http://10.2.3.4:8080',
    EGRESS_ALLOW: '192.168.7.0/24'
  }
  t.match(said((await run('doctor', env)).out, 'EGRESS_ALLOW'), {
    level: 'WARN',
    found: /^some\.mjs: WAREHOUSE_URL: target 10\.2\.3\.4 is in a private range$/,
    remedy: 'EGRESS_ALLOW=192.168.7.0/24,10.2.0.0/16, if that is intended'
  })
  handler('all', '${env.WAREHOUSE_URL}')
  const all = said((await run('doctor', env)).out, 'EGRESS_ALLOW')
  t.match(all, { level: 'FIX', found: /all\.mjs: WAREHOUSE_URL/ }, 'nothing of that handler can be delivered')
  const [, given = ''] = /EGRESS_ALLOW=(\S+),/.exec(all.remedy ?? '') ?? []
  t.match(said((await run('doctor', { ...env, EGRESS_ALLOW: given })).out, 'EGRESS_ALLOW'), {
    level: 'OK',
    found: '3 targets, none of them is blocked'
  })
  writeFileSync(
    path.join(dir, 'plain.mjs'),
    `import { defineHandler, z } from 'ackbox/handler'
     // not url: 'http://10.3.3.3'
     const schema = 'http://10.4.4.4/schema'
     const computed = port => ({ url: 'http://10.5.5.5:' + port })
     export default defineHandler({ messageCode: 'plain', body: z.any(), downstreams: {
       d9: { transport: 'http', request: () => ({ url: 'http://10.9.9.9:8080/orders' }) } } })`
  )
  t.match(said((await run('doctor', { ...env, EGRESS_ALLOW: given })).out, 'EGRESS_ALLOW'), {
    level: 'FIX',
    found: /^plain\.mjs: http:\/\/10\.9\.9\.9:8080: target 10\.9\.9\.9 is in a private range$/
  })
})

t.test('a handler whose targets are not in its text is told to be tried, and not to be sound', async t => {
  const dir = folder(t)
  writeFileSync(
    path.join(dir, 'computed.mjs'),
    `import { defineHandler, z } from 'ackbox/handler'
     export default defineHandler({ messageCode: 'computed', body: z.any(), downstreams: {
       d1: { transport: 'http', request: ({ body }) => ({ url: body.url }) } } })`
  )
  const { out } = await run('doctor', { DATABASE_URL: (await testDb(t)).url, HANDLERS_DIR: dir })
  t.match(said(out, 'EGRESS_ALLOW').found, /^no target of a handler is known .*--dry-run$/)
})

t.test('a broker that is the Redis of the queue is told, whatever its address', async t => {
  const [redis, other] = await Promise.all([ownRedis(t), ownRedis(t)])
  if (!redis || !other) return
  const alias = await lyingProxy(t, new URL(redis.url), answer => answer)
  const env = {
    DATABASE_URL: (await testDb(t)).url,
    REDIS_URL: redis.url,
    BROKER_OTHER: other.url,
    EGRESS_ALLOW: `127.0.0.1:${alias},127.0.0.1:${other.port}`
  }
  t.match(said((await run('doctor', env)).out, 'Brokers'), { level: 'OK' })
  const beside = { ...env, BROKER_ALIAS: `redis://127.0.0.1:${alias}`, BROKER_SAME: redis.url }
  const { out } = await run('doctor', beside)
  t.match(said(out, 'Brokers'), {
    level: 'WARN',
    found: /^BROKER_ALIAS, BROKER_SAME: the server of REDIS_URL/,
    remedy: 'give the queue a Redis of its own'
  })
  t.match(said(out, 'EGRESS_ALLOW'), { level: 'FIX', found: /BROKER_SAME.*this service's own endpoint/ })
})

t.test('missing tables, rights, roles and keys are told, each with what makes them', async t => {
  const url = await emptyDb(t)
  const ask = async (check: string, at = url) => said((await run('doctor', { DATABASE_URL: at })).out, check)
  t.match(await ask('Migrations'), { level: 'FIX', remedy: 'npm run migrate' })
  t.equal((await run('migrate', { DATABASE_URL: url })).code, 0)
  t.match(await ask('Migrations'), { level: 'OK' })

  const sql = postgres(url, { max: 1 })
  t.teardown(() => sql.end())
  t.match(await ask('API keys'), { level: 'WARN', remedy: /npm run key -- create/ })
  await createKey(sql as never, {
    name: 'a',
    scopes: ['tasks:write'],
    messageCodes: null,
    who: { name: 'test' }
  })
  t.match(await ask('API keys'), { level: 'OK', found: '1 in use' })

  t.match(await ask('Roles'), { level: 'OK', found: 'no process runs now' })
  await writeNode(sql as never, { id: 'one', roles: 'api', version: '0' })
  t.match(await ask('Roles'), {
    level: 'WARN',
    found: /nothing is delivered/,
    remedy: /ROLE=worker,dispatcher/
  })
  await writeNode(sql as never, { id: 'two', roles: 'worker,dispatcher', version: '0' })
  await keepNodes(sql)
  t.match(await ask('Roles'), { level: 'OK' })

  const guest = `guest_${process.pid}`
  await sql.unsafe(`create role ${guest} login password 'guest'; grant usage on schema drizzle to ${guest};
    grant select on all tables in schema drizzle to ${guest}; grant select on all tables in schema public to ${guest}`)
  t.teardown(async () => {
    await sql.unsafe(`drop owned by ${guest}; drop role ${guest}`)
  })
  const as = new URL(url)
  as.username = guest
  as.password = 'guest'
  const rights = await ask('PostgreSQL rights', String(as))
  t.match(rights, { level: 'FIX', remedy: /grant select, insert, update, delete/ })
  const tables = await sql<{ name: string }[]>`
    select relname as name from pg_class
    where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition order by relname`
  t.equal(
    rights.found,
    `this user may not read and write ${tables.map(({ name }) => name).join(', ')}`,
    'every table is looked at'
  )
  await sql.unsafe((rights.remedy ?? '').replace(/^.*?: /, '').replaceAll('USER', guest))
  t.match(await ask('PostgreSQL rights', String(as)), { level: 'OK' }, 'once done as told')
  await sql.unsafe(`revoke update, delete on audit from ${guest}; revoke delete on api_key from ${guest}`)
  t.match(
    await ask('PostgreSQL rights', String(as)),
    { level: 'OK' },
    'more than these need is not asked for'
  )
  await sql.unsafe(`revoke insert on owner from ${guest}; revoke update on api_key from ${guest}`)
  t.match(await ask('PostgreSQL rights', String(as)), {
    level: 'FIX',
    found: 'this user may not read and write api_key, owner'
  })
})

t.test('the same is said at a start, by one that starts all the same', async t => {
  const redis = await ownRedis(t, '--maxmemory-policy', 'volatile-lru')
  const on = await stage(t)
  if (!redis || !on) return
  const service = await start(t, { ...on.env, REDIS_URL: redis.url, ROLE: 'api,dispatcher' })
  const lines = () =>
    service
      .output()
      .split('\n')
      .filter(line => /"msg":"doctor\./.test(line))
      .map(line => JSON.parse(line) as { check: string; msg: string; remedy: string })
  await until('the doctor spoke', () => lines().some(({ check }) => check === 'PUBLIC_URL'))
  const found = new Map(lines().map(line => [line.check, line]))
  for (const check of ['PostgreSQL fsync', 'PostgreSQL full_page_writes', 'Redis eviction'])
    t.match(found.get(check), { msg: 'doctor.fix', remedy: /set/ }, check)
  t.notOk(found.has('Roles'), 'the others may be about to start')
  t.notOk(found.has('Clock'), 'and nothing of what is well')
  t.notOk(found.has('Handlers'), 'nor are they loaded once more')
  await until('they had their time', () => lines().some(({ check }) => check === 'Roles'))
  t.match(
    lines().find(({ check }) => check === 'Roles'),
    { msg: 'doctor.warn', remedy: 'start a process with ROLE=worker' }
  )
  t.equal((await service.kill('SIGTERM')).code, 0)
})
