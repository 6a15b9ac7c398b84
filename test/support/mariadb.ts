import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import path from 'node:path'
import mysql from 'mysql2/promise'
import type { Test } from 'tap'
import { freePort } from '../../src/embedded/port.ts'
import { folder } from './service.ts'

export interface TestMariadb {
  /** Of the database `test`. */
  url: string
  pool: mysql.Pool
  /** Answers to `kill -9`; what was committed is there after the next start. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** Starts it again on its port. */
  start(): Promise<void>
}

const readyLine = 'ready for connections'
// Debian keeps it where only root looks.
const env = { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/usr/local/sbin` }

/** A MariaDB of the test's own; undefined where there is none: then the test is skipped, but on a build machine it fails. */
export async function testMariadb(t: Test): Promise<TestMariadb | undefined> {
  if (spawnSync('mariadbd', ['--version'], { env }).status !== 0) {
    const none = 'no MariaDB: put mariadbd and mariadb-install-db (10.6 or newer) on the PATH'
    if (process.env['CI'] === 'true') t.fail(none)
    else t.comment(`SKIP ${none}`)
    return undefined
  }
  const home = folder(t)
  const data = path.join(home, 'data')
  // As root it refuses to start unless it is told to.
  const user = process.getuid?.() === 0 ? ['--user=root'] : []
  const made = spawnSync(
    'mariadb-install-db',
    [
      '--no-defaults',
      `--datadir=${data}`,
      '--auth-root-authentication-method=normal',
      '--skip-test-db',
      ...user
    ],
    { env, encoding: 'utf8' }
  )
  if (made.status !== 0) throw new Error(made.stdout + made.stderr)
  const port = await freePort()
  let child: ChildProcess | undefined
  const start = async (): Promise<void> => {
    const starting = spawn(
      'mariadbd',
      [
        '--no-defaults',
        `--datadir=${data}`,
        `--port=${port}`,
        '--bind-address=127.0.0.1',
        `--socket=${path.join(home, 'socket')}`,
        `--pid-file=${path.join(home, 'pid')}`,
        '--skip-name-resolve',
        // Nothing here must survive a crash of the machine.
        '--innodb-flush-log-at-trx-commit=0',
        '--innodb-buffer-pool-size=64M',
        ...user
      ],
      { env, stdio: ['ignore', 'ignore', 'pipe'] }
    )
    child = starting
    let said = ''
    await new Promise<void>((resolve, reject) => {
      // Read for as long as it lives: a full pipe would stop it.
      starting.stderr.setEncoding('utf8').on('data', (text: string) => {
        if (said.includes(readyLine)) return
        said += text
        if (said.includes(readyLine)) resolve()
      })
      starting.once('error', reject)
      starting.once('exit', () => reject(new Error(`mariadbd ended at its start:\n${said}`)))
    })
  }
  const kill = async (signal: NodeJS.Signals = 'SIGKILL'): Promise<void> => {
    const dying = child
    if (!dying || dying.exitCode !== null || dying.signalCode !== null) return
    const gone = once(dying, 'exit')
    dying.kill(signal)
    await gone
  }
  t.teardown(() => kill())
  await start()
  const at = { host: '127.0.0.1', port, user: 'root' }
  const admin = await mysql.createConnection(at)
  await admin.query('create database test')
  await admin.end()
  const pool = mysql.createPool({ ...at, database: 'test', connectionLimit: 4, multipleStatements: true })
  t.teardown(() => pool.end())
  return { url: `mysql://root@127.0.0.1:${port}/test`, pool, kill, start }
}
