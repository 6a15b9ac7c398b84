import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { createKey, findKey, hashKey, revokeKey, scopes } from '../db/api-keys.ts'
import { openDb } from '../db/pool.ts'

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

/** Revokes the key of an earlier DEMO=on: it has every scope, and was printed. */
export async function dropDemoKey(databaseUrl: string, dataDir: string): Promise<void> {
  const file = fileIn(dataDir)
  if (!existsSync(file)) return
  const sql = openDb(databaseUrl, { max: 1 })
  try {
    const key = await findKey(sql, hashKey(readFileSync(file, 'utf8').trim()))
    if (key) await revokeKey(sql, { id: key.id, who: { name: 'DEMO=off' } })
    rmSync(file)
  } finally {
    await sql.end({ timeout: 1 })
  }
}
