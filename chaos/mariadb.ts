// A MariaDB in its own folder. It can be killed and started again.
import { spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { mkdirSync } from 'node:fs'
import path from 'node:path'
import { freePort } from '../src/embedded/port.ts'

export interface MariadbServer {
  port: number
  /** Resolves when the process has ended. `kill -9` by default. */
  kill(signal?: NodeJS.Signals): Promise<void>
  /** Starts it again on its port. */
  start(): Promise<void>
  pid(): number
}

const readyLine = 'ready for connections'
// Debian installs it in a folder that only root has in its PATH.
const env = { ...process.env, PATH: `${process.env['PATH']}:/usr/sbin:/usr/local/sbin` }

export const hasMariadb = (): boolean => spawnSync('mariadbd', ['--version'], { env }).status === 0

/** `isDurable`: a commit survives a kill. */
export async function serveMariadb(
  home: string,
  { isDurable, options = [] }: { isDurable: boolean; options?: readonly string[] }
): Promise<MariadbServer> {
  const data = path.join(home, 'data')
  // A starting server removes the temporary tables that it finds. In a shared folder these would belong to other servers.
  const temporary = path.join(home, 'tmp')
  mkdirSync(temporary, { recursive: true })
  // As root, mariadbd starts only with this option.
  const user = process.getuid?.() === 0 ? ['--user=root'] : []
  const install = spawnSync(
    'mariadb-install-db',
    [
      '--no-defaults',
      `--datadir=${data}`,
      `--tmpdir=${temporary}`,
      '--auth-root-authentication-method=normal',
      '--skip-test-db',
      ...user
    ],
    { env, encoding: 'utf8' }
  )
  if (install.status !== 0) throw new Error(install.stdout + install.stderr)
  const port = await freePort()
  let child: ChildProcess | undefined
  const start = async (): Promise<void> => {
    const starting = spawn(
      'mariadbd',
      [
        '--no-defaults',
        `--datadir=${data}`,
        `--tmpdir=${temporary}`,
        `--port=${port}`,
        '--bind-address=127.0.0.1',
        `--socket=${path.join(home, 'socket')}`,
        `--pid-file=${path.join(home, 'pid')}`,
        '--skip-name-resolve',
        `--innodb-flush-log-at-trx-commit=${isDurable ? 1 : 0}`,
        '--innodb-buffer-pool-size=64M',
        ...options,
        ...user
      ],
      { env, stdio: ['ignore', 'ignore', 'pipe'] }
    )
    child = starting
    let log = ''
    await new Promise<void>((resolve, reject) => {
      // Read until the process ends: a full pipe would block it.
      starting.stderr.setEncoding('utf8').on('data', (text: string) => {
        if (log.includes(readyLine)) return
        log += text
        if (log.includes(readyLine)) resolve()
      })
      starting.once('error', reject)
      starting.once('exit', () => reject(new Error(`mariadbd ended at its start:\n${log}`)))
    })
  }
  await start()
  return {
    port,
    start,
    pid: () => child?.pid ?? 0,
    async kill(signal = 'SIGKILL') {
      const dying = child
      if (!dying || dying.exitCode !== null || dying.signalCode !== null) return
      const gone = once(dying, 'exit')
      dying.kill(signal)
      await gone
    }
  }
}
