import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseError } from '../db/pool.ts'
import type { Logger } from '../runtime/logger.ts'

export interface RunAs {
  uid: number
  gid: number
  /** Root in a user namespace that calls it otherwise: where the way to us is closed to every other user. */
  renamed?: boolean
}

const inNamespace = ({ uid, gid }: RunAs) => ['--user', `--map-user=${uid}`, `--map-group=${gid}`, '--']

/** A program of PostgreSQL as `spawn` wants it. */
export function commandOf(
  runAs: RunAs | undefined,
  binary: string,
  args: string[]
): [command: string, args: string[], who: { uid?: number; gid?: number }] {
  if (!runAs) return [binary, args, {}]
  if (runAs.renamed) return ['unshare', [...inNamespace(runAs), binary, ...args], {}]
  return [binary, args, { uid: runAs.uid, gid: runAs.gid }]
}

/**
 * PostgreSQL refuses to run as root. Then it runs as the user who owns what it finds; for a new folder as `postgres`, who is
 * made if missing. Else as we do.
 */
export function postgresUser(dataDir: string, log?: Pick<Logger, 'info'>): RunAs | undefined {
  if (process.getuid?.() !== 0) return undefined
  return (
    ownerOf(path.join(dataDir, 'postgres')) ??
    accountOf(ownerOf(dataDir)?.uid) ??
    accountOf('postgres') ??
    made(log)
  )
}

function ownerOf(folder: string): RunAs | undefined {
  if (!fs.existsSync(folder)) return undefined
  const { uid, gid } = fs.statSync(folder)
  return uid === 0 ? undefined : { uid, gid }
}

function made(log: Pick<Logger, 'info'> | undefined): RunAs {
  const name = 'postgres'
  try {
    execFileSync('useradd', ['--system', '--user-group', '--no-create-home', name], { stdio: 'pipe' })
    log?.info({ user: name }, 'postgres.user_made')
  } catch (err) {
    const other = accountOf(name) // another start may have been faster
    if (other) return other
    throw new DatabaseError(
      `PostgreSQL does not run as root, and the user ${name} could not be made. Start Ackbox as ` +
        `a normal user, or make that user: useradd --system ${name} (${String(err).split('\n')[0]})`
    )
  }
  const account = accountOf(name)
  if (!account) throw new DatabaseError('PostgreSQL does not run as root. Start Ackbox as a normal user.')
  return account
}

/**
 * The folder exists, we may write it, and the one who runs PostgreSQL can reach the data and the program. Says who that
 * is: a project under /root is closed to all but root, so there it is root under another name.
 */
export function readyFor(user: RunAs | undefined, dataDir: string, binary: string): RunAs | undefined {
  const data = path.join(dataDir, 'postgres')
  const owner = fs.existsSync(data) ? fs.statSync(data).uid : undefined
  // What root under another name has made stays with it.
  const asItself = user && owner !== 0 && canReach(user, dataDir, binary)
  const runAs = asItself ? user : user && (renamed(user) ?? user)
  try {
    // Others may pass through (not look) when PostgreSQL is another user; the files in it are 0600 each.
    fs.mkdirSync(dataDir, { recursive: true, mode: runAs ? 0o711 : 0o700 })
    fs.accessSync(dataDir, fs.constants.R_OK | fs.constants.W_OK | fs.constants.X_OK)
  } catch (err) {
    const { code } = err as NodeJS.ErrnoException
    throw new DatabaseError(
      `Ackbox cannot write its data folder ${dataDir} (${code}): ` +
        'give it to the user who runs Ackbox, or set DATA_DIR to another folder.'
    )
  }
  const wanted = runAs && !runAs.renamed ? runAs.uid : process.getuid?.()
  if (owner !== undefined && wanted !== undefined && owner !== wanted) {
    throw new DatabaseError(
      `${data} belongs to user ${owner}, but PostgreSQL would run as user ${wanted}: ` +
        `start Ackbox as the user who made it, run chown -R ${wanted} ${data}, or set DATA_DIR to another folder.`
    )
  }
  if (!runAs || runAs.renamed) return runAs
  for (const target of [dataDir, path.dirname(binary)]) {
    const closed = closedTo(runAs, target)
    if (!closed) continue
    throw new DatabaseError(
      `As root PostgreSQL runs as user ${runAs.uid}, who may not enter ${closed}: ` +
        (target === dataDir
          ? 'set DATA_DIR to a folder that this user can reach (/var/lib/ackbox), or start Ackbox as a normal user.'
          : `chmod o+x ${closed}, install Ackbox elsewhere (/opt/ackbox), or start it as a normal user.`)
    )
  }
  return runAs
}

function canReach(user: RunAs, dataDir: string, binary: string): boolean {
  const existing = fs.existsSync(dataDir) ? dataDir : path.dirname(dataDir)
  return [existing, path.dirname(binary)].every(target => !fs.existsSync(target) || !closedTo(user, target))
}

/** Undefined where namespaces are not to be had, as in many containers. */
function renamed(user: RunAs): RunAs | undefined {
  const tried = spawnSync('unshare', [...inNamespace(user), 'true'], { stdio: 'ignore' })
  return tried.status === 0 ? { ...user, renamed: true } : undefined
}

/** The topmost folder on the way to `target` that this user may not pass through. */
function closedTo({ uid, gid }: RunAs, target: string): string | undefined {
  const parent = path.dirname(target)
  const above = parent === target ? undefined : closedTo({ uid, gid }, parent)
  if (above) return above
  const stat = fs.statSync(target)
  const bit = stat.uid === uid ? 0o100 : stat.gid === gid ? 0o010 : 0o001
  return stat.mode & bit ? undefined : target
}

/** By name or by number; initdb asks for the name of its user, so that a number without one will not do. */
function accountOf(user: string | number | undefined): RunAs | undefined {
  if (user === undefined) return undefined
  try {
    const id = (flag: string) =>
      Number(execFileSync('id', [flag, String(user)], { stdio: ['ignore', 'pipe', 'ignore'] }))
    return { uid: id('-u'), gid: id('-g') }
  } catch {
    return undefined
  }
}
