// The processes that use the tests' PostgreSQL: a file per pid, since most connections of tests are too short to be seen.
import fs from 'node:fs'
import path from 'node:path'

const folder = (dataDir: string): string => path.join(dataDir, 'users')

/** Registers this process as a user until it ends. */
export function announce(dataDir: string): void {
  fs.mkdirSync(folder(dataDir), { recursive: true })
  fs.writeFileSync(path.join(folder(dataDir), String(process.pid)), '')
}

/** Whether any process still uses it. Removes the files of processes that have ended. */
export function isUsed(dataDir: string): boolean {
  if (!fs.existsSync(folder(dataDir))) return false
  const gone = fs.readdirSync(folder(dataDir)).filter(pid => !isRunning(Number(pid)))
  for (const pid of gone) fs.rmSync(path.join(folder(dataDir), pid), { force: true })
  return fs.readdirSync(folder(dataDir)).length > 0
}

export function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}
