import { spawnSync } from 'node:child_process'
import path from 'node:path'
import pg from 'pg'
import t from 'tap'
import { emptyDb } from '../support/postgres.ts'

const bin = path.resolve(import.meta.dirname, '../../src/cli/ackbox.js')
const consumer = (...args: string[]) =>
  spawnSync(process.execPath, [bin, 'consumer', ...args], { encoding: 'utf8' })

t.test('ackbox consumer prints the tables, which can be made twice', async t => {
  const { status, stdout } = consumer('--print-ddl', 'postgres')
  t.equal(status, 0)
  const client = new pg.Client({ connectionString: await emptyDb(t) })
  await client.connect()
  t.teardown(() => client.end())
  for (let times = 0; times < 2; times++) await client.query(stdout)
  const { rows } = await client.query(
    'select consumer, webhook_id, task_no, result, handled_at from ackbox_received'
  )
  t.same(rows, [])
  t.match(consumer('--print-ddl', 'mysql'), { status: 0, stdout: /engine = InnoDB/ })
})

t.test('ackbox consumer says what it prints when asked for something else', t => {
  for (const args of [[], ['--print-ddl', 'oracle']])
    t.match(
      consumer(...args),
      { status: 1, stderr: /^--print-ddl must be postgres or mysql\n.* --help shows / },
      args.join(' ')
    )
  t.match(consumer('--print'), { status: 1, stderr: /^Unknown option '--print'\n/ })
  t.end()
})
