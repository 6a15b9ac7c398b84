// ackbox key: makes, lists and revokes API keys, and prints the signing secret of a downstream.
import { userInfo } from 'node:os'
import { parseArgs } from 'node:util'
import { environment, readConfig, SettingError, type Config } from '../service/config.ts'
import { embeddedSecret } from '../embedded/start.ts'
import { createKey, listKeys, revokeKey, scopes, type Scope } from '../db/keys.ts'
import { checkServer, DatabaseError, isInfrastructure, openDb, type Sql } from '../db/pool.ts'
import { runPostmaster, stopPostmaster, urlOf } from '../embedded/postmaster.ts'
import { commandLine } from '../runtime/package.ts'
import { signingSecret } from '../domain/tokens.ts'

export const help = `${commandLine('key create NAME --scopes tasks:write,tasks:read [--codes order.paid,stock.moved]')}
${commandLine('key list')}
${commandLine('key revoke ID')}
${commandLine('key secret DOWNSTREAM')}

Scopes: ${scopes.join(', ')}. Without --codes a key may use every messageCode. A key is shown once, when it is made.
secret prints what a downstream needs to check webhook-signature (Standard Webhooks), derived from SECRET.
The database is the one of DATABASE_URL, or the embedded one.`

/** What was asked for makes no sense; the message says what to do instead. */
class UsageError extends Error {}

export async function run(args: string[]): Promise<void> {
  try {
    await perform(args)
  } catch (err) {
    if (err instanceof UsageError || err instanceof SettingError || err instanceof DatabaseError) {
      console.error(err.message)
    } else if (isInfrastructure(err)) {
      console.error(`The database cannot be reached. \`${commandLine('doctor')}\` says why.`)
    } else if (err instanceof Error && 'code' in err && err.code === '42P01') {
      console.error(
        `The database has no tables yet: ${commandLine('migrate')} (or ${commandLine('start')}, for the embedded one)`
      )
    } else throw err
    process.exitCode = 1
  }
}

async function perform(args: string[]): Promise<void> {
  const [verb, name, options] = asked(args)
  if (verb === undefined) return console.log(help)
  const config = readConfig(environment())
  switch (verb) {
    case 'create':
      return await withDatabase(config, sql => create(sql, name, options))
    case 'list':
      return await withDatabase(config, list)
    case 'revoke':
      return await withDatabase(config, sql => revoke(sql, name))
    case 'secret':
      return console.log(signingSecret(config.secret ?? embeddedSecret(config.dataDir), downstream(name)))
    default:
      throw new UsageError(`There is no "${verb}".\n\n${help}`)
  }
}

interface Options {
  scopes?: string | undefined
  codes?: string | undefined
}

function asked(args: string[]): [verb: string | undefined, name: string, options: Options] {
  try {
    const { values, positionals } = parseArgs({
      args,
      allowPositionals: true,
      options: {
        scopes: { type: 'string' },
        codes: { type: 'string' }
      }
    })
    const [verb, name = '', ...more] = positionals
    if (more.length > 0) throw new UsageError(`What is "${more.join(' ')}"?\n\n${help}`)
    return [verb, name, values]
  } catch (err) {
    if (err instanceof TypeError) throw new UsageError(`${err.message}\n\n${help}`, { cause: err })
    throw err
  }
}

async function create(sql: Sql, name: string, options: Options): Promise<void> {
  if (!/^[\w .@-]{1,64}$/.test(name))
    throw new UsageError('A key needs a NAME of up to 64 letters, digits and . _ - @')
  const wanted = words(options.scopes)
  if (wanted.length === 0)
    throw new UsageError(`Say what it may do: --scopes ${scopes.join(',')} or some of them`)
  const unknown = wanted.filter(word => !isScope(word))
  if (unknown.length > 0)
    throw new UsageError(`No such scope: ${unknown.join(', ')}. There are ${scopes.join(', ')}.`)
  const codes = words(options.codes)
  const wrong = codes.filter(code => !/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(code))
  if (wrong.length > 0) throw new UsageError(`Not a messageCode: ${wrong.join(', ')}`)
  const { id, key } = await createKey(sql, {
    name,
    scopes: wanted.filter(isScope),
    messageCodes: options.codes === undefined ? null : codes,
    who: who()
  })
  // The key alone on stdout, so that it can be piped; what is for people goes to stderr.
  console.error(`Key ${id} of ${name}. It is shown this once:`)
  console.log(key)
}

async function list(sql: Sql): Promise<void> {
  const keys = await listKeys(sql)
  if (keys.length === 0) console.log(`No keys. ${commandLine('key create NAME --scopes tasks:write')}`)
  for (const key of keys) {
    const since = key.revokedAt
      ? `revoked ${key.revokedAt.toISOString()}`
      : `since ${key.createdAt.toISOString()}`
    console.log(
      `${key.id}  ${key.name}  ${key.scopes.join(',')}  ${key.messageCodes?.join(',') ?? 'every code'}  ${since}`
    )
  }
}

async function revoke(sql: Sql, id: string): Promise<void> {
  if (id === '')
    throw new UsageError(`Say which: ${commandLine('key revoke ID')} (${commandLine('key list')} shows them)`)
  if (!(await revokeKey(sql, { id, who: who() })))
    throw new UsageError(`No key ${id}, or it is revoked already.`)
  console.log(`${id} is revoked: within 5 seconds no process takes it any more.`)
}

function downstream(name: string): string {
  if (!/^[a-z][a-z0-9-]{0,31}$/.test(name))
    throw new UsageError(`Say whose: ${commandLine('key secret DOWNSTREAM')}`)
  return name
}

/** Without DATABASE_URL: the embedded one, running or not; one that runs already goes on. */
async function withDatabase(config: Config, act: (sql: Sql) => Promise<void>): Promise<void> {
  const own = config.databaseUrl === undefined ? await runPostmaster({ dataDir: config.dataDir }) : null
  const sql = openDb(own ? urlOf(own) : (config.databaseUrl ?? ''), { max: 1 })
  try {
    await checkServer(sql)
    await act(sql)
  } finally {
    await sql.end({ timeout: 5 })
    if (own && !own.adopted) await stopPostmaster({ pid: own.pid, dataDir: config.dataDir })
  }
}

function words(text = ''): string[] {
  return text
    .split(',')
    .map(word => word.trim())
    .filter(word => word !== '')
}

function isScope(word: string): word is Scope {
  return scopes.some(scope => scope === word)
}

/** Who is at the terminal: for the audit, and no proof of anything. */
function who(): string {
  try {
    return `cli:${userInfo().username}`
  } catch {
    return 'cli'
  }
}
