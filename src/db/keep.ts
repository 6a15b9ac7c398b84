import { randomBytes } from 'node:crypto'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseError } from './open.ts'

/** Reads what is kept in this file, or makes it once, readable by us alone. `whenMissing`: it must be there if this is. */
export function keep(file: string, whenMissing?: string): string {
  if (!fs.existsSync(file)) {
    if (whenMissing && fs.existsSync(path.join(whenMissing, 'PG_VERSION'))) {
      throw new DatabaseError(
        `${file} is missing, and ${whenMissing} cannot be opened without it. ` +
          'Put it back, or set DATA_DIR to a new folder.'
      )
    }
    const mine = `${file}.${process.pid}`
    fs.writeFileSync(mine, randomBytes(32).toString('base64url') + '\n', { mode: 0o600, flush: true })
    try {
      fs.linkSync(mine, file) // unlike rename it never replaces what another process put there meanwhile
    } catch (err) {
      if ((err as NodeJS.ErrnoException).code !== 'EEXIST') throw err
    } finally {
      fs.unlinkSync(mine)
    }
  }
  return fs.readFileSync(file, 'utf8').trim()
}
