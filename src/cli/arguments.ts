// Reads the command line. An argument that a command would ignore is refused: `tasks redeliver --all order-1` must not redeliver all.
import { parseArgs, type ParseArgsConfig } from 'node:util'
import { messageOf } from '../runtime/errors.ts'
import { nearest } from '../runtime/nearest.ts'
import { readTextFile } from '../runtime/text-file.ts'
import { codeOf } from '../runtime/text-of.ts'

/** A command line that cannot run. The message contains the remedy. ackbox.ts prints it and exits with 1. */
export class UsageError extends Error {}

/** A slip in the words and options: ackbox.ts adds a line with the --help of the command. The help itself would hide what is wrong. */
export class SlipError extends UsageError {}

/** `parseArgs`, whose errors are slips. Their second sentence is about arguments that begin with a `-`. */
function parsed<const Config extends ParseArgsConfig>(config: Config): ReturnType<typeof parseArgs<Config>> {
  try {
    return parseArgs(config)
  } catch (err) {
    if (codeOf(err)?.startsWith('ERR_PARSE_ARGS') !== true) throw err
    throw new SlipError(messageOf(err).split(/\. |\n/, 1)[0])
  }
}

/** Like `parseArgs`, with the names of the given options. An option given twice is refused: only the last value would count. */
export function readArguments<const Config extends ParseArgsConfig>(
  config: Config
): ReturnType<typeof parseArgs<Config>> & { given: string[] } {
  const { tokens } = parsed({ ...(config as ParseArgsConfig), tokens: true })
  const given = tokens.flatMap(token => (token.kind === 'option' ? [token.name] : []))
  const repeated = given.find((name, at) => given.indexOf(name) !== at)
  if (repeated !== undefined) throw new SlipError(`--${repeated} is given twice: give it once`)
  return { ...parsed(config), given }
}

/** The verb of a command such as `key`. Without one, as from an empty variable of a script, it is refused too. */
export function readVerb<const Verb extends string>(given: string | undefined, verbs: readonly Verb[]): Verb {
  const verb = verbs.find(each => each === given)
  if (verb === undefined) throw new SlipError(unknownCommand(given, verbs))
  return verb
}

export function unknownCommand(given: string | undefined, known: readonly string[]): string {
  if (given === undefined) return `Missing command: ${known.join(', ')}`
  const meant = nearest(given, known)
  return `Unknown command: ${given}.${meant ? ` Did you mean ${meant}?` : ''}`
}

/** The API key of --key, --key-file or ACKBOX_KEY. Read before a database is opened: later, an ENOENT would look like that of a socket. */
export function readKey(
  { key, 'key-file': file }: { key?: string | undefined; 'key-file'?: string | undefined },
  env: NodeJS.ProcessEnv
): string | undefined {
  // A variable read from a file ends in a line break, which no header takes.
  if (key !== undefined) return key.trim()
  if (file === undefined) return env['ACKBOX_KEY']?.trim() || undefined
  try {
    return readTextFile(file).trim()
  } catch (err) {
    throw new UsageError(`--key-file cannot be read: ${messageOf(err)}`)
  }
}

/** The address of a running service: --url, ACKBOX_URL, or this machine at PORT. */
export function readUrl(given: string | undefined, env: NodeJS.ProcessEnv): string {
  if (given !== undefined) return checkHttp('--url', given)
  const { ACKBOX_URL: url, PORT: port } = env
  return url ? checkHttp('ACKBOX_URL', url) : checkHttp('PORT:', `http://127.0.0.1:${port || '3000'}`)
}

/** The address that rows are posted to: --to or ACKBOX_URL. */
export function readTarget(given: string | undefined, env: NodeJS.ProcessEnv): string {
  const url = given ?? env['ACKBOX_URL'] ?? ''
  if (url === '') throw new SlipError(`Missing option: --to http://…`)
  return checkHttp(given === undefined ? 'ACKBOX_URL' : '--to', url)
}

/** Returns the URL. `source`: where it is from, for the error. */
function checkHttp(source: string, url: string): string {
  if (URL.canParse(url) && /^https?:$/.test(new URL(url).protocol)) return url
  throw new UsageError(`${source} ${url} is not an http or https URL`)
}

/** A whole number from 1 to `most`. */
export function readWhole(option: string, given: string, most: number): number {
  const number = /^\d+$/.test(given) ? Number(given) : 0
  if (number < 1 || number > most)
    throw new UsageError(`${option} must be a whole number from 1 to ${most}, not ${given}`)
  return number
}

/** The names of the words of a command, and its options. */
export interface CommandUsage {
  words: readonly string[]
  options: readonly string[]
}

export function refuseSurplus(
  command: string,
  takes: CommandUsage,
  { words, given }: { words: readonly string[]; given: readonly string[] }
): void {
  const surplus = words.slice(takes.words.length)
  if (surplus.length > 0) throw new SlipError(`${command} does not take ${surplus.join(' ')}`)
  const useless = given.filter(name => !takes.options.includes(name))
  if (useless.length > 0)
    throw new SlipError(`${command} does not take ${useless.map(name => `--${name}`).join(', ')}`)
}

/** `1 handler`, `2 handlers`, `10,000+ deliveries`. */
export const counted = (count: number | string, one: string, many = `${one}s`): string =>
  `${count} ${String(count) === '1' ? one : many}`

/** The controls of the terminal, and of the order in which it shows text (bidi): https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing */
// oxlint-disable-next-line eslint/no-control-regex -- the expression must match control characters to remove them
const controls = /[\u0000-\u001f\u007f-\u009f\p{Bidi_Control}]/gu

/** Removes control characters: a downstream's text must not control the terminal. */
export const printable = (text: string): string => text.replaceAll(controls, ' ')
