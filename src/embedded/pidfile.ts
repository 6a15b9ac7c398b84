// Finds the PostgreSQL that runs on a data folder by its postmaster.pid. The file may be stale, and its pid may be another program's.
import fs from 'node:fs'
import path from 'node:path'

interface PidFile {
  pid: number
  port: number
  /** As PostgreSQL writes it: starting, standby, ready or stopping. */
  state: string | undefined
}

export function readPidFile(data: string): PidFile | undefined {
  try {
    const lines = fs.readFileSync(path.join(data, 'postmaster.pid'), 'utf8').split('\n')
    return { pid: Number(lines[0]), port: Number(lines[3]), state: lines[7]?.trim() }
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw err
  }
}

/** The PostgreSQL that runs on this data, no matter which process started it. */
export function findRunning(data: string): PidFile | undefined {
  const file = readPidFile(data)
  if (file?.pid === 0) discardEmpty(data)
  if (!file || !Number.isInteger(file.pid) || file.pid <= 0) return undefined
  if (isPostmaster(file.pid, data)) return file
  disown(data, file.pid)
  return undefined
}

/** PostgreSQL creates the file and fills it at once. A file that stays empty is left by a crash in between, and blocks every start. */
function discardEmpty(data: string): void {
  const file = path.join(data, 'postmaster.pid')
  const stat = fs.statSync(file, { throwIfNoEntry: false })
  if (stat?.size === 0 && Date.now() - stat.mtimeMs > 2_000) fs.rmSync(file, { force: true })
}

/**
 * After a crash the pid in postmaster.pid may belong to another program (usual in containers), and PostgreSQL then
 * refuses to start. A pid that cannot exist lets it start. The file must stay, since it also names the shared memory
 * by which PostgreSQL finds out whether an old backend still runs.
 */
function disown(data: string, pid: number): void {
  if (!isAlive(pid)) return
  const file = path.join(data, 'postmaster.pid')
  const lines = fs.readFileSync(file, 'utf8').split('\n')
  if (Number(lines[0]) !== pid) return
  fs.writeFileSync(file, ['2147483646', ...lines.slice(1)].join('\n'))
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (err) {
    return (err as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Alive, and on Linux certainly ours: the pid alone may belong to another program by now. A zombie counts as ended. */
export function isPostmaster(pid: number, data: string): boolean {
  if (!isAlive(pid)) return false
  try {
    if (process.platform !== 'linux') return readPidFile(data)?.pid === pid
    const words = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return words[0]?.endsWith('postgres') === true && (words.includes(data) || runsIn(pid, data, words))
  } catch (err) {
    // Any other error, such as a lack of file descriptors, says nothing about the process, and it is alive.
    return !['ENOENT', 'ESRCH'].includes((err as NodeJS.ErrnoException).code ?? '')
  }
}

/** The same folder under another name, as by a symbolic link. PostgreSQL works in its data folder, which only its user and root can see. */
function runsIn(pid: number, data: string, words: readonly string[]): boolean {
  const folder = fs.realpathSync(data)
  try {
    return fs.realpathSync(`/proc/${pid}/cwd`) === folder
  } catch {
    return words.some(
      word => path.isAbsolute(word) && fs.existsSync(word) && fs.realpathSync(word) === folder
    )
  }
}
