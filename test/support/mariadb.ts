import mysql from 'mysql2/promise'
import type { Test } from 'tap'
import { hasMariadb, serveMariadb, type MariadbServer } from '../../chaos/mariadb.ts'
import { folder } from './service.ts'

export interface TestMariadb extends Pick<MariadbServer, 'kill' | 'start'> {
  /** Of the database `test`. */
  url: string
  pool: mysql.Pool
}

/** A MariaDB of the test's own; undefined where there is none: then the test is skipped, but on a build machine it fails. */
export async function testMariadb(t: Test): Promise<TestMariadb | undefined> {
  if (!hasMariadb()) {
    const none = 'no MariaDB: put mariadbd and mariadb-install-db (10.6 or newer) on the PATH'
    if (process.env['CI'] === 'true') t.fail(none)
    else await t.test(none, { skip: true }, () => {})
    return undefined
  }
  // Nothing here must survive a crash of the machine.
  const { port, kill, start } = await serveMariadb(folder(t), { isDurable: false })
  t.teardown(() => kill())
  const at = { host: '127.0.0.1', port, user: 'root' }
  const admin = await mysql.createConnection(at)
  await admin.query('create database test')
  await admin.end()
  const pool = mysql.createPool({ ...at, database: 'test', connectionLimit: 4, multipleStatements: true })
  t.teardown(() => pool.end())
  return { url: `mysql://root@127.0.0.1:${port}/test`, pool, kill, start }
}
