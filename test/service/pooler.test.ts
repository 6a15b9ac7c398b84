// A real pgbouncer in transaction mode before PostgreSQL: no process starts on it, and the error line names the remedy.
import { spawn, spawnSync } from 'node:child_process'
import { chmodSync, chownSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import t, { type Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { checkDatabase } from '../../src/db/pool.ts'
import { readColumns } from '../../src/relay/columns.ts'
import { withTable } from '../../src/relay/table.ts'
import { testDb } from '../support/postgres.ts'
import { without } from '../support/program.ts'
import { folder, launch, plainNode, secret } from '../support/service.ts'
import { withStrangeSettings } from '../support/strange-settings.ts'
import { until } from '../support/until.ts'

t.setTimeout(2_400_000)

const program = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')

const skip = without('pgbouncer')

/** Starts a pgbouncer for the test. Returns the URL through it. */
async function bouncer(t: Test, url: string, ...more: string[]): Promise<string> {
  const { hostname, port, username, password, pathname } = new URL(url)
  const own = await freePort()
  const dir = folder(t)
  const file = path.join(dir, 'pgbouncer.ini')
  const users = path.join(dir, 'users.txt')
  writeFileSync(users, `"${username}" "${decodeURIComponent(password)}"\n`)
  const lines = [
    '[databases]',
    `* = host=${hostname} port=${port}`,
    '[pgbouncer]',
    'listen_addr = 127.0.0.1',
    `listen_port = ${own}`,
    'unix_socket_dir =',
    'auth_type = plain',
    `auth_file = ${users}`,
    'pool_mode = transaction',
    ...more
  ]
  writeFileSync(file, `${lines.join('\n')}\n`)
  // pgbouncer refuses to run as root.
  const nobody = process.getuid?.() === 0 ? 65_534 : undefined
  for (const each of [dir, file, users]) {
    chmodSync(each, each === dir ? 0o755 : 0o600)
    if (nobody !== undefined) chownSync(each, nobody, nobody)
  }
  const child = spawn('pgbouncer', ['-q', file], {
    stdio: 'ignore',
    ...(nobody !== undefined && { uid: nobody, gid: nobody })
  })
  t.teardown(() => child.kill('SIGKILL'))
  const through = `postgres://${username}:${password}@127.0.0.1:${own}${pathname}`
  await until('pgbouncer answers', () =>
    checkDatabase(through).then(
      () => true,
      (err: Error & { code?: string }) => err.code !== 'ECONNREFUSED'
    )
  )
  return through
}

/** The output of `ackbox doctor`, which exits with 1 because there is something to fix. */
function doctor(url: string): string {
  const { status, stdout } = spawnSync(plainNode[0], [...plainNode.slice(1), program, 'doctor'], {
    env: { PATH: process.env['PATH'] ?? '', DATABASE_URL: url, SECRET: secret },
    encoding: 'utf8'
  })
  return status === 1 ? stdout : `${status}: ${stdout}`
}

t.test('pgbouncer that refuses the settings of our sessions', { skip }, async t => {
  const { url } = await testDb(t)
  const through = await bouncer(t, url)
  await t.rejects(checkDatabase(through), /pooler answers .*Point DATABASE_URL to PostgreSQL itself/)
  t.match(
    doctor(through),
    /^FIX {3}PostgreSQL +cannot be used: A pooler answers .*Point DATABASE_URL to PostgreSQL itself/m
  )
  const service = launch(t, { DATABASE_URL: through, SECRET: secret, AUTH: 'off', PORT: '0' })
  t.same(await service.exited, { code: 1, signal: null })
  t.match(
    service.output(),
    /ackbox: A pooler answers .*Point DATABASE_URL to PostgreSQL itself, not to a pooler/
  )
})

t.test('pgbouncer between the relay and its producer', { skip }, async t => {
  const { url } = await testDb(t)
  const through = await bouncer(t, url)
  const { status, stderr } = spawnSync(
    plainNode[0],
    [...plainNode.slice(1), program, 'relay', '--from', through, '--to', 'http://127.0.0.1:1', '--once'],
    { env: { PATH: process.env['PATH'] ?? '' }, encoding: 'utf8' }
  )
  t.equal(status, 1)
  t.match(stderr, /^A pooler answers .*Point --from to PostgreSQL itself/)
})

t.test('pgbouncer before the database of an import', { skip }, async t => {
  const { url } = await testDb(t)
  await withStrangeSettings(url)
  const through = await bouncer(t, url)
  const columns = readColumns('taskNo=no,messageCode=no,messageBody=body,deliverStartTime=at')
  const table = `(values ('a', '1', timestamptz '2026-03-04 05:06:07.089+00')) as v (no, body, at)`
  const read: unknown[] = []
  await withTable(
    through,
    { table, columns, where: undefined, order: undefined, batch: 10 },
    async ({ batches }) => {
      for await (const rows of batches) read.push(...rows)
    },
    new AbortController().signal
  )
  t.match(read, [{ taskNo: 'a', deliverStartTime: '2026-03-04T05:06:07.089000Z' }], 'it reads as anywhere')
})

t.test('pgbouncer that drops them in silence', { skip }, async t => {
  const { url, sql } = await testDb(t)
  const sent = Object.keys(sql.options.connection).filter(name => name !== 'application_name')
  const through = await bouncer(t, url, `ignore_startup_parameters = ${sent.join()}`)
  await t.rejects(
    checkDatabase(through),
    /Settings of our sessions do not reach PostgreSQL: .*enable_seqscan.*\. Point DATABASE_URL/
  )
  t.match(
    doctor(through),
    /^FIX {3}PostgreSQL +cannot be used: Settings of our sessions do not reach .*Point DATABASE_URL to PostgreSQL itself/m
  )
})
