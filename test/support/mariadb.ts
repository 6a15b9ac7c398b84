import mysql from 'mysql2/promise'
import type { Test } from 'tap'
import { hasMariadb, serveMariadb, type MariadbServer } from '../../chaos/mariadb.ts'
import { folder } from './service.ts'

export interface TestMariadb extends Pick<MariadbServer, 'kill' | 'start'> {
  /** The URL of the database `test`. */
  url: string
  pool: mysql.Pool
}

/** A MariaDB for this test only. Undefined if none is installed: the test is skipped, or fails with CI=true. */
export async function testMariadb(
  t: Test,
  options: readonly string[] = []
): Promise<TestMariadb | undefined> {
  if (!hasMariadb()) {
    const none = 'no MariaDB: put mariadbd and mariadb-install-db (10.6 or newer) on the PATH'
    if (process.env['CI'] === 'true') t.fail(none)
    else await t.test(none, { skip: true }, () => {})
    return undefined
  }
  // No data here has to survive a crash of the machine.
  const { port, kill, start } = await serveMariadb(folder(t), { isDurable: false, options })
  t.teardown(() => kill())
  const at = { host: '127.0.0.1', port, user: 'root' }
  const admin = await mysql.createConnection(at)
  await admin.query('create database test')
  await admin.end()
  const pool = mysql.createPool({ ...at, database: 'test', connectionLimit: 4, multipleStatements: true })
  t.teardown(() => pool.end())
  return { url: `mysql://root@127.0.0.1:${port}/test`, pool, kill, start }
}
