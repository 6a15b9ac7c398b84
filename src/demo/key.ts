import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createKey, findKey, hashKey, revokeKey, scopes } from '../db/api-keys.ts'
import { openDb } from '../db/pool.ts'
import { messageOf } from '../runtime/errors.ts'

export interface DemoKey {
  key: string
  /** The file of the key. Only its owner can read it. */
  file: string
}

/** The key of `npm run demo` and of the printed curl. It is created once for this database, and only its owner can read it in `dataDir`. */
export async function keepDemoKey(databaseUrl: string, dataDir: string): Promise<DemoKey> {
  const file = fileIn(dataDir)
  const sql = openDb(databaseUrl, { max: 1 })
  try {
    const kept = existsSync(file) ? readFileSync(file, 'utf8').trim() : ''
    if (kept && (await findKey(sql, hashKey(kept)))) return { key: kept, file }
    const { key } = await createKey(sql, {
      name: 'demo',
      scopes: [...scopes],
      messageCodes: null,
      who: { name: 'DEMO=on' }
    })
    mkdirSync(path.dirname(file), { recursive: true })
    writeFileSync(file, `${key}\n`, { mode: 0o600 })
    return { key, file }
  } finally {
    await sql.end({ timeout: 1 })
  }
}

const fileIn = (dataDir: string): string => path.join(path.resolve(dataDir), 'demo-key')

/** The key that a service with DEMO=on stores in `dataDir`, for the commands that call the service. */
export function readDemoKey(dataDir = '.ackbox'): string | undefined {
  try {
    return readFileSync(fileIn(dataDir), 'utf8').trim() || undefined
  } catch {
    return undefined
  }
}

/** The header for a shell command. It contains the key itself only for a terminal: other outputs, such as logs, may store it. */
export function demoHeader({ key, file }: DemoKey, isTerminal: boolean): string {
  if (isTerminal) return `-H 'authorization: Bearer ${key}'`
  return `-H "authorization: Bearer $(cat '${file.replaceAll("'", `'\\''`)}')"`
}

/**
 * Revokes the key of an earlier DEMO=on: it has every scope, and was printed. Returns a warning if its file cannot be read or removed: the
 * folder may be read-only, or belong to another user.
 */
export async function dropDemoKey(databaseUrl: string, dataDir: string): Promise<string | undefined> {
  const file = fileIn(dataDir)
  if (!existsSync(file)) return undefined
  let kept: string
  try {
    kept = readFileSync(file, 'utf8').trim()
  } catch (err) {
    return `the key of an earlier DEMO=on may still be valid: ${messageOf(err)}; revoke the key demo, and remove the file`
  }
  const sql = openDb(databaseUrl, { max: 1 })
  try {
    const key = await findKey(sql, hashKey(kept))
    if (key) await revokeKey(sql, { id: key.id, who: { name: 'DEMO=off' } })
  } finally {
    await sql.end({ timeout: 1 })
  }
  try {
    rmSync(file)
    return undefined
  } catch (err) {
    return `the key of an earlier DEMO=on is revoked, but its file stays: ${messageOf(err)}; remove it`
  }
}
