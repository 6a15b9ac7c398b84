import { execFileSync, spawnSync } from 'node:child_process'
import fs from 'node:fs'
import path from 'node:path'
import { DatabaseError } from '../db/pool.ts'
import type { Logger } from '../runtime/logger.ts'
import { textOf } from '../runtime/text-of.ts'

export interface RunAs {
  uid: number
  gid: number
  /** Root, in a user namespace that maps it to `uid`: for folders that no other user can reach. */
  renamed?: boolean
}

const inNamespace = ({ uid, gid }: RunAs) => ['--user', `--map-user=${uid}`, `--map-group=${gid}`, '--']

/** The arguments of `spawn` for a program of PostgreSQL. */
export function commandOf(
  runAs: RunAs | undefined,
  binary: string,
  args: string[]
): [command: string, args: string[], user: { uid?: number; gid?: number }] {
  if (!runAs) return [binary, args, {}]
  if (runAs.renamed) return ['unshare', [...inNamespace(runAs), binary, ...args], {}]
  return [binary, args, { uid: runAs.uid, gid: runAs.gid }]
}

/**
 * PostgreSQL refuses to run as root. If we are root, it runs as the owner of the existing folder, or for a new folder as
 * `postgres`, which is created if missing. Otherwise it runs as our own user.
 */
export function postgresUser(dataDir: string, log?: Pick<Logger, 'info'>): RunAs | undefined {
  if (process.getuid?.() !== 0) return undefined
  return (
    ownerOf(path.join(dataDir, 'postgres')) ??
    accountOf(ownerOf(dataDir)?.uid) ??
    accountOf('postgres') ??
    createUser(log)
  )
}

function ownerOf(folder: string): RunAs | undefined {
  if (!fs.existsSync(folder)) return undefined
  const { uid, gid } = fs.statSync(folder)
  return uid === 0 ? undefined : { uid, gid }
}

function createUser(log: Pick<Logger, 'info'> | undefined): RunAs {
  const name = 'postgres'
  try {
    execFileSync('useradd', ['--system', '--user-group', '--no-create-home', name], { stdio: 'pipe' })
    log?.info({ user: name }, 'postgres.user_made')
  } catch (err) {
    const other = accountOf(name) // another start may have been faster
    if (other) return other
    throw new DatabaseError(
      `PostgreSQL does not run as root, and the user ${name} could not be made. Start Ackbox as ` +
        `a normal user, or make that user: useradd --system ${name} (${textOf(err).split('\n')[0]})`
    )
  }
  const account = accountOf(name)
  if (!account) throw new DatabaseError('PostgreSQL does not run as root. Start Ackbox as a normal user.')
  return account
}

/**
 * Ensures that the folder exists, that we can write it, and that the user of PostgreSQL can reach the data and the program.
 * Returns that user. A project under /root is closed to all but root, so there it is root in a user namespace.
 */
export function readyFor(user: RunAs | undefined, dataDir: string, binary: string): RunAs | undefined {
  const data = path.join(dataDir, 'postgres')
  const owner = fs.existsSync(data) ? fs.statSync(data).uid : undefined
  // Data that root created in a user namespace stays with root.
  const asItself = user && owner !== 0 && canReach(user, dataDir, binary)
  const runAs = asItself ? user : user && (renamed(user) ?? user)
  try {
    // If PostgreSQL is another user, others may enter the folder but not list it. Each file in it is 0600.
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

/** Undefined where user namespaces are not available, as in many containers. */
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

/** By name or by uid. initdb needs the name of its user, so a uid without a name is not enough. */
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
