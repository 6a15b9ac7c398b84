import { DatabaseError, isInfrastructure } from '../db/pool.ts'
import { HandlersError } from '../handler/load.ts'
import { QueueServerError } from '../queue/redis.ts'
import { messageOf, rootOf, SetupError } from '../runtime/errors.ts'
import { commandLine } from '../runtime/package.ts'
import { SettingError } from '../service/config.ts'
import { isError, textOf } from '../runtime/text-of.ts'

/** The reason of a failure and the remedy, in one line. Only a bug of Ackbox gets a stack. */
export function explain(err: unknown): string {
  if (err instanceof SettingError) return err.message.replaceAll(/^/gm, 'ackbox: ')
  if (
    err instanceof DatabaseError ||
    err instanceof HandlersError ||
    err instanceof QueueServerError ||
    err instanceof SetupError
  )
    return `ackbox: ${err.message}`
  const root = rootOf(err)
  const message = messageOf(root)
  const { code, syscall, path, address, port } = systemErrorOf(root)
  if (code === 'EADDRINUSE')
    return `ackbox: ${address ?? ''}:${port ?? ''} is in use: stop what listens there, or set PORT to a free one`
  if (code === 'EADDRNOTAVAIL' || (code === 'EACCES' && /^(?:listen|bind)$/.test(syscall ?? '')))
    return `ackbox: cannot listen on ${address ?? ''}:${port ?? ''} (${code}): check HOST and PORT`
  // The call of a file system names its path. Connections have an address.
  if (path !== undefined && syscall !== 'connect')
    return `ackbox: a file or folder cannot be used (${message}): check it, and what the user of this process may do`
  if (code === '3D000' || code?.startsWith('28'))
    return `ackbox: PostgreSQL refuses the connection (${message}): check DATABASE_URL`
  if (code === '42501')
    return `ackbox: the user of DATABASE_URL may not do this (${message}): run it as the owner of the tables, or follow "A role that does not own the tables" in docs/operations.md`
  if (code === '42P01')
    return `ackbox: the database has no tables yet (${message}): run ${commandLine('migrate')} (or ${commandLine('start')} for the embedded one)`
  if (isInfrastructure(err)) {
    return `ackbox: PostgreSQL cannot be used (${message.trim() || code}): check DATABASE_URL, and that the server is up`
  }
  const because = root === err ? '' : `\nbecause of ${stackOf(root)}`
  return `ackbox: this is a bug\n${stackOf(err)}${because}`
}

interface SystemError {
  code?: string
  syscall?: string
  path?: string
  address?: string
  port?: number
}
/** The members of an error of Node. Anything else has none of them. */
const systemErrorOf = (err: unknown): SystemError => (typeof err === 'object' && err !== null ? err : {})

const stackOf = (err: unknown): string => (isError(err) && err.stack) || textOf(err)
