// Which PostgreSQL runs on a folder of data, as its postmaster.pid says; the file may be stale, and the number another's.
import fs from 'node:fs'
import path from 'node:path'

interface PidFile {
  pid: number
  port: number
  ready: boolean
}

export function readPidFile(data: string): PidFile | undefined {
  try {
    const lines = fs.readFileSync(path.join(data, 'postmaster.pid'), 'utf8').split('\n')
    return { pid: Number(lines[0]), port: Number(lines[3]), ready: lines[7]?.trim() === 'ready' }
  } catch (err) {
    if ((err as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw err
  }
}

/** The one that runs on this data, whoever started it. */
export function findRunning(data: string): { pid: number; port: number } | undefined {
  const file = readPidFile(data)
  if (file?.pid === 0) discardEmpty(data)
  if (!file || !Number.isInteger(file.pid) || file.pid <= 0) return undefined
  if (isPostmaster(file.pid, data)) return { pid: file.pid, port: file.port }
  disown(data, file.pid)
  return undefined
}

/** PostgreSQL makes the file and fills it at once. One that stays empty is left from a crash between, and stops every start. */
function discardEmpty(data: string): void {
  const file = path.join(data, 'postmaster.pid')
  const stat = fs.statSync(file, { throwIfNoEntry: false })
  if (stat?.size === 0 && Date.now() - stat.mtimeMs > 2_000) fs.rmSync(file, { force: true })
}

/**
 * After a crash postmaster.pid may name a number that by now is another program's (usual in containers), and PostgreSQL
 * then refuses to start. A number that cannot exist lets it start; the file must stay, since it also names the
 * shared memory by which PostgreSQL finds out whether a backend of old still runs.
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

/** Alive, and on Linux certainly ours: a number alone may have passed to another program. A zombie counts as gone. */
export function isPostmaster(pid: number, data: string): boolean {
  if (!isAlive(pid)) return false
  if (process.platform !== 'linux') return readPidFile(data)?.pid === pid
  try {
    const words = fs.readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0')
    return words.includes(data) && words[0]?.endsWith('postgres') === true
  } catch {
    return false
  }
}
