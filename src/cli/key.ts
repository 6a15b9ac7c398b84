// ackbox key: creates, lists and revokes API keys, and prints the signing secret of a downstream.
import { environment, readConfig, type Config } from '../service/config.ts'
import { list } from '../service/settings.ts'
import { createKey, listApiKeys, revokeKey, scopes, type Scope } from '../db/api-keys.ts'
import { drizzle } from '../db/drizzle.ts'
import type { Sql } from '../db/pool.ts'
import { Problem } from '../runtime/errors.ts'
import { commandLine } from '../runtime/package.ts'
import { defined, present } from '../domain/optional-members.ts'
import { downstreamForm, messageCodeForm } from '../domain/ids.ts'
import { signingSecret } from '../domain/tokens.ts'
import { readArguments, readVerb, refuseSurplus, type CommandUsage, UsageError } from './arguments.ts'
import { secretOf, who, withDatabase } from './database.ts'

export const help = `${commandLine('key create NAME --scopes tasks:write,tasks:read [--codes order.paid,stock.moved]')}
${commandLine('key list [--json]')}
${commandLine('key revoke ID')}
${commandLine('key secret DOWNSTREAM')}

Scopes: ${scopes.join(', ')}. Without --codes a key may use every messageCode. A key is shown only once, when it is created.
secret prints the signing secret of a downstream, which verifies webhook-signature (Standard Webhooks). It is derived from SECRET.
If no handler has the name, a warning on stderr lists the known names.
check:MESSAGECODE instead of DOWNSTREAM prints the secret with which producers of half messages verify checks.
The command uses the database of DATABASE_URL, or the embedded one.
Exit: 0 done · 1 an error, which is printed`

export async function run(args: string[]): Promise<void> {
  const [verb, name, options] = readCommand(args)
  const config = readConfig(environment())
  switch (verb) {
    case 'create':
      return await withDatabase(config, sql => create(sql, name, options))
    case 'list':
      return await withDatabase(config, sql => printKeys(sql, options))
    case 'revoke':
      return await withDatabase(config, sql => revoke(sql, name))
    case 'secret':
      return await printSecret(config, downstream(name))
  }
}

const verbs = ['create', 'list', 'revoke', 'secret'] as const
type Verb = (typeof verbs)[number]

const taken: Record<Verb, CommandUsage> = {
  create: { words: ['NAME'], options: ['scopes', 'codes'] },
  list: { words: [], options: ['json'] },
  revoke: { words: ['ID'], options: [] },
  secret: { words: ['DOWNSTREAM'], options: [] }
}

interface Options {
  scopes?: string | undefined
  codes?: string | undefined
  json?: boolean | undefined
}

function readCommand(args: string[]): [verb: Verb, name: string, options: Options] {
  const { values, positionals, given } = readArguments({
    args,
    allowPositionals: true,
    options: { scopes: { type: 'string' }, codes: { type: 'string' }, json: { type: 'boolean' } }
  })
  const [first, ...words] = positionals
  const verb = readVerb(first, verbs)
  refuseSurplus(`key ${verb}`, taken[verb], { words, given })
  return [verb, words[0] ?? '', values]
}

async function create(sql: Sql, name: string, options: Options): Promise<void> {
  if (!/^[\w .@-]{1,64}$/.test(name))
    throw new UsageError('A key needs a NAME of up to 64 letters, digits, spaces and . _ - @')
  const wanted = list(options.scopes ?? '')
  if (wanted.length === 0)
    throw new UsageError(`Set the scopes: --scopes with one or more of ${scopes.join(',')}`)
  const unknown = wanted.filter(word => !isScope(word))
  if (unknown.length > 0)
    throw new UsageError(`Unknown scope: ${unknown.join(', ')}. The scopes are ${scopes.join(', ')}.`)
  const codes = list(options.codes ?? '')
  // For example from an unset variable: the key would be useless, and no message would show it.
  if (options.codes !== undefined && codes.length === 0)
    throw new UsageError('--codes names no messageCode. Without --codes a key may use every messageCode.')
  const wrong = codes.filter(code => !messageCodeForm.test(code))
  if (wrong.length > 0) throw new UsageError(`Invalid messageCode: ${wrong.join(', ')}`)
  const { id, key } = await createKey(sql, {
    name,
    scopes: wanted.filter(isScope),
    messageCodes: options.codes === undefined ? null : codes,
    who: who()
  }).catch((err: unknown) => {
    if (!(err instanceof Problem)) throw err
    throw new UsageError(
      `${name} is the name of a key that another key created, or of the command line: choose another name, or revoke that key (${commandLine('key list')} shows it)`
    )
  })
  // Only the key goes to stdout, so that it can be piped.
  console.error(`Created key ${id} (${name}). The key is shown only once:`)
  console.log(key)
}

async function readKeys(sql: Sql): Promise<ListedKey[]> {
  const keys: ListedKey[] = []
  for (let cursor: string | undefined; ;) {
    const page = await listApiKeys(drizzle(sql), { limit: 200, ...defined({ cursor }) })
    keys.push(...page.apiKeys)
    cursor = page.nextCursor
    if (cursor === undefined) return keys
  }
}
type ListedKey = Awaited<ReturnType<typeof listApiKeys>>['apiKeys'][number]

/** With --json, one array, also when it is empty. */
async function printKeys(sql: Sql, { json = false }: Options): Promise<void> {
  const keys = await readKeys(sql)
  if (json) return console.log(JSON.stringify(keys.map(jsonOf)))
  if (keys.length === 0)
    console.log(`There are no keys. Create one: ${commandLine('key create NAME --scopes tasks:write')}`)
  for (const key of keys) {
    const since = key.revokedAt
      ? `revoked ${key.revokedAt.toISOString()}`
      : `since ${key.createdAt.toISOString()}`
    const by = key.createdById === null ? '' : `  created by ${key.createdById}`
    console.log(
      `${key.id}  ${key.name}  ${key.scopes.join(',')}  ${key.messageCodes?.join(',') ?? 'all codes'}  ${since}${by}`
    )
  }
}

/** As `GET /api-keys` shows it. */
const jsonOf = ({ createdById, revokedAt, ...key }: ListedKey) => ({
  ...key,
  ...present('createdById', createdById),
  ...present('revokedAt', revokedAt)
})

async function revoke(sql: Sql, id: string): Promise<void> {
  if (id === '')
    throw new UsageError(
      `The ID is missing: ${commandLine('key revoke ID')} (${commandLine('key list')} shows the IDs)`
    )
  if (!(await revokeKey(sql, { id, who: who() })))
    throw new UsageError(`Key ${id} does not exist, or is already revoked.`)
  console.log(`Key ${id} is revoked. Within 5 seconds every process refuses it.`)
}

/** Prints the secret of any name, before the check of the name: a secret may be needed before its handler exists. */
async function printSecret(config: Config, name: string): Promise<void> {
  console.log(signingSecret(secretOf(config), name))
  const { unusedName } = await import('./key/names.ts')
  const warning = await unusedName(name)
  if (warning !== undefined) console.error(warning)
}

function downstream(name: string): string {
  const isCheck = name.startsWith('check:') && messageCodeForm.test(name.slice('check:'.length))
  if (isCheck || downstreamForm.test(name)) return name
  const usage = commandLine('key secret DOWNSTREAM')
  if (name === '') throw new UsageError(`The name of the downstream is missing: ${usage}`)
  throw new UsageError(
    `${JSON.stringify(name)} is not the name of a downstream. It is a key below \`downstreams\` in a handler, not a messageCode: ${commandLine('handlers')} lists them.\n${usage}`
  )
}

function isScope(word: string): word is Scope {
  return scopes.some(scope => scope === word)
}
