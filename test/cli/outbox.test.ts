import { execFile } from 'node:child_process'
import path from 'node:path'
import t from 'tap'
import { testDb } from '../support/postgres.ts'
import { plainNode } from '../support/service.ts'

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

async function outbox(url: string, ...args: string[]): Promise<{ code: number; out: string; err: string }> {
  const env = {
    PATH: process.env['PATH'] ?? '',
    DATABASE_URL: url,
    SECRET: 'a secret of the test, long enough'
  }
  return await new Promise(resolve => {
    const child = execFile(
      plainNode[0],
      [...plainNode.slice(1), program, 'outbox', ...args],
      { env },
      (_, out, err) => resolve({ code: child.exitCode ?? -1, out, err })
    )
  })
}

t.test('a role is let in by name, and what makes no sense is said in a line', async t => {
  const { url, sql } = await testDb(t)
  const role = `Grant "${process.pid}"`
  await sql.unsafe(`create role "${role.replaceAll('"', '""')}"`)
  t.teardown(async () => {
    await sql.unsafe(
      `drop owned by "${role.replaceAll('"', '""')}"; drop role "${role.replaceAll('"', '""')}"`
    )
  })
  const may = () => sql<{ name: string }[]>`
    select p.proname as name from pg_proc p
    where has_function_privilege(${role}, p.oid, 'execute') and has_schema_privilege(${role}, 'ackbox_api', 'usage')
      and p.pronamespace = 'ackbox_api'::regnamespace
    order by 1`
  t.same([...(await may())], [])
  await sql`revoke create on schema public from public`
  for (let again = 0; again < 2; again++)
    t.match(await outbox(url, 'grant', role), { code: 0, out: /may call ackbox_api\.enqueue/ })
  t.same(
    (await may()).map(row => row.name),
    ['enqueue', 'enqueue', 'enqueue_many']
  )
  const beyond = await sql`
    select p.oid::regprocedure::text as name from pg_proc p
    where p.prosecdef and has_function_privilege(${role}, p.oid, 'execute')
      and p.pronamespace not in ('ackbox_api'::regnamespace, 'pg_catalog'::regnamespace)`
  t.same([...beyond], [], 'it may call nothing else that runs with the rights of the owner')
  await sql`grant create on schema public to public`
  t.match(await outbox(url, 'grant', role), {
    code: 1,
    err: /may create functions and operators .* Forbid it: revoke create on schema public from public; Or grant with --trusted\.$/m
  })
  t.match(await outbox(url, 'grant', role, '--trusted'), { code: 0 })
  await sql`revoke create on schema public from public`
  t.match(await outbox(url, 'grant', 'nobody-knows'), {
    code: 1,
    err: /The role nobody-knows does not exist .*: create role "nobody-knows" login;/
  })
  t.match(await outbox(url, 'grant', 'a"b'), { code: 1, err: /: create role "a""b" login;\n$/ })
  t.match(await outbox(url, 'grant'), { code: 1, err: /Missing ROLE: npm run outbox -- grant ROLE/ })
  t.match(await outbox(url, 'grant', 'a', 'b'), { code: 1, err: /outbox grant does not take b/ })
  t.match(await outbox(url, 'revoke', 'a'), { code: 1, err: /Unknown command: revoke/ })
  t.match(await outbox(url, '--help'), { code: 0, out: /npm run outbox -- grant ROLE/ })
})
