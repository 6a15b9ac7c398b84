import { join } from 'node:path'
import t from 'tap'
import { openDb } from '../../src/db/pool.ts'
import { emptyDb, lockWaits } from '../support/postgres.ts'
import { program } from '../support/program.ts'
import { until } from '../support/until.ts'

const migrate = [join(import.meta.dirname, '../../src/cli/ackbox.js'), 'migrate']

t.test('a migration that is killed between two statements is run again', async t => {
  const url = await emptyDb(t)
  const first = program(t, process.execPath, migrate, {
    env: { DATABASE_URL: url, FAILPOINTS: 'migrate.step=kill#7' }
  })
  await first.said(/"failpoint".*"hit":7/)
  t.equal(await first.stop('SIGKILL'), null, 'it died of a signal')
  const again = program(t, process.execPath, migrate, { env: { DATABASE_URL: url } })
  await again.said(/applied 0000_foundation/)
  const third = program(t, process.execPath, migrate, { env: { DATABASE_URL: url } })
  await third.said(/nothing to do/)
})

t.test('a second migration waits for one that stands still, and both end well', async t => {
  const url = await emptyDb(t)
  const first = program(t, process.execPath, migrate, {
    env: { DATABASE_URL: url, FAILPOINTS: 'migrate.step=stop#7' }
  })
  await first.said(/"failpoint".*"hit":7/)
  const second = program(t, process.execPath, migrate, { env: { DATABASE_URL: url } })
  const sql = openDb(url, { max: 1, applicationName: 'ackbox test' })
  t.teardown(() => sql.end({ timeout: 5 }))
  await until('it waits for the first', async () => (await lockWaits(sql)) === 1)
  t.match(second.lines, [/^to apply: 0000_foundation, /], 'it waits')
  t.equal(second.lines.length, 1)
  process.kill(first.pid, 'SIGCONT')
  await first.said(/applied 0000_foundation/)
  await second.said(/nothing to do/)
})

t.test('in production a migration heeds no failpoint', async t => {
  const url = await emptyDb(t)
  const asked = program(t, process.execPath, migrate, {
    env: { DATABASE_URL: url, FAILPOINTS: 'migrate.step=kill', NODE_ENV: 'production' }
  })
  await asked.said(/FAILPOINTS is for tests/)
})
