// The heads of a callback token (domain/tokens.ts) and of a signature of Standard Webhooks; the rest of each is the secret.
import type { Outcome } from './types.ts'

const token = /(v1\.[A-Za-z0-9_-]{8}\.[0-9a-z]{1,9}\.[a-z][a-z0-9-]{0,31}\.[1-9][0-9]{0,9})\.[A-Za-z0-9_-]+/g
// As it went out, in JSON that escapes slashes, or percent-encoded.
const signature = /v1(?:,|%2C)(?:\\?[A-Za-z0-9+/]|%2[BF]){20,}(?:=|%3D|\\u003d)?/gi
// An API key (db/api-keys.ts), which somebody put where it does not belong.
const key = /(?:\b|(?<=%[0-9a-f]{2}))ack_[\w-]{24,}/gi
/** What each of them begins with. */
const any = /v1[.,%]|ack_/i
/** ASCII in UTF-16, read byte by byte: little- and big-endian look alike but for the NUL outside of their ends. */
const wide = /[!-~](?:\0[!-~]){7,}/g

/**
 * Without the proofs that went out with an attempt: services that echo what they got would have us store, and show to
 * everybody who may read tasks, what lets one send a receipt. Told by their shape, so that one cut off half-way, or one
 * of an earlier attempt, is found as well.
 */
export function redact(text: string): string {
  // Nearly always there is nothing: one look in place of three.
  const shown = any.test(text)
    ? text.replace(token, '$1.[masked]').replace(signature, 'v1,[masked]').replace(key, 'ack_[masked]')
    : text
  return shown.includes('\0') ? shown.replace(wide, maskedWide) : shown
}

const isAscii = (char = '\0'): boolean => char >= '!' && char <= '~'

function maskedWide(run: string, at: number, all: string): string {
  const text = run.replaceAll('\0', '')
  let shown = redact(text)
  // ASCII around it: it may be big-endian, and its first character the last of what is before it.
  if (shown === text && (isAscii(all[at - 1]) || isAscii(all[at + run.length])))
    shown = run.slice(0, 1) + redact(text.slice(1))
  return shown === text ? run : shown.split('').join('\0')
}

/** The same for bytes of whatever encoding; they are the very same where there is nothing to hide. */
export function redactBytes(bytes: Uint8Array): Uint8Array {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
  const shown = redact(text)
  return shown === text ? bytes : Buffer.from(shown, 'latin1')
}

/** Headers, and members of a query, that log in somewhere, by their names. */
const login = /auth|cookie|token|secret|password|credential|api[-_]?key|^key$|^sig(?:nature)?$/i
/** What is shorter is no secret, and would be found in every answer. */
const shortest = 8

/**
 * The outcome without what the handler's request logged in with. A downstream that echoes its request, as many do in their
 * error pages, would have us keep its own key and show it to everybody who may read tasks.
 */
export function redactRequestSecrets(outcome: Outcome, request: unknown): Outcome {
  const secrets = secretsOf(request)
  if (secrets.length === 0) return outcome
  const hide = hider(secrets)
  const { answer, headers, warning } = outcome
  const shown = {
    ...outcome,
    ...(answer === undefined ? {} : { answer: hideIn(answer, hide) }),
    ...(headers === undefined
      ? {}
      : { headers: headers.map(([name, value]): [string, string] => [name, hide(value)]) }),
    ...(warning === undefined ? {} : { warning: hide(warning) })
  }
  return shown.kind === 'delivered' ? shown : { ...shown, reason: hide(shown.reason) }
}

/** A character in some encoding has `width` bytes at least; here each byte is a character, as in an answer read as Latin-1. */
interface Encoded {
  secret: string
  mask: string
  width: number
}

const mask = '[masked]'
// Little-endian first: it is found in big-endian too, one byte later, and leaves the very same bytes.
const encodings: { width: number; encode: (text: string) => Buffer }[] = [
  { width: 1, encode: text => Buffer.from(text) },
  { width: 2, encode: text => Buffer.from(text, 'utf16le') },
  { width: 2, encode: text => Buffer.from(text, 'utf16le').swap16() }
]

function hider(secrets: string[]): (text: string) => string {
  const plain = secrets.map((secret): Encoded => ({ secret, mask, width: 1 }))
  let others: Encoded[] | undefined
  return text => {
    const shown = plain.reduce(withoutOne, text)
    // oxlint-disable-next-line eslint/no-control-regex -- only what is not ASCII may be in another encoding
    if (!/[^\x01-\x7f]/.test(text)) return shown
    others ??= encodings.flatMap(({ width, encode }) =>
      secrets.map(secret => ({
        secret: encode(secret).toString('latin1'),
        mask: encode(mask).toString('latin1'),
        width
      }))
    )
    return others.reduce(withoutOne, shown)
  }
}

/** Answers are cut, perhaps in the midst of a secret, or of a character. */
function withoutOne(text: string, { secret, mask, width }: Encoded): string {
  const shown = text.replaceAll(secret, mask)
  for (let length = Math.min(secret.length - 1, shown.length); length >= width * shortest; length--)
    if (shown.endsWith(secret.slice(0, length)))
      return shown.slice(0, -length) + (length % width === 0 ? mask : mask.slice(0, -1))
  return shown
}

function hideIn(answer: Uint8Array, hide: (text: string) => string): Uint8Array {
  const text = Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength).toString('latin1')
  const shown = hide(text)
  return shown === text ? answer : Buffer.from(shown, 'latin1')
}

/** The values of its headers or attachments that log in, as they are and as an echo may write them; the longest first. */
function secretsOf(request: unknown): string[] {
  const { headers, attachments, url } = (request ?? {}) as { [name: string]: unknown }
  const found = new Set<string>()
  for (const named of [headers, attachments, queryOf(url)]) {
    if (typeof named !== 'object' || named === null) continue
    for (const [name, value] of Object.entries(named)) {
      if (typeof value !== 'string' || !login.test(name)) continue
      // `Bearer …`, `Basic …`: what follows is the secret, and may come back alone.
      for (const secret of [value, value.replace(/^\w+ +/, '')])
        for (const written of formsOf(secret)) found.add(written)
    }
  }
  return longestFirst(found)
}

const longestFirst = (texts: Iterable<string>): string[] => [...texts].toSorted((a, b) => b.length - a.length)

function formsOf(secret: string): string[] {
  if (secret.length < shortest) return []
  const inJson = JSON.stringify(secret).slice(1, -1)
  return [secret, inJson, inJson.replaceAll('/', '\\/'), encoded(secret)]
}

/** The values of settings that are secrets by their names, as a request may hold them. */
export const secretSettings = (settings: Readonly<Record<string, string | undefined>>): string[] =>
  longestFirst(
    new Set(
      Object.entries(settings).flatMap(([name, value = '']) =>
        login.test(name) || /key$/i.test(name) ? formsOf(value) : []
      )
    )
  )

/** What the request of a handler shows to people: without what it logs in with, without `secrets`, and bytes as their number. */
export function shownRequest(request: object, secrets: readonly string[]): Record<string, unknown> {
  const hide = hider(longestFirst([...secretsOf(request), ...secrets]))
  const text = (value: string): string => redact(hide(value.replace(loginsOfQuery, `$1${mask}`)))
  const shown = (value: unknown, name: string): unknown => {
    if (typeof value === 'string') return login.test(name) ? mask : text(value)
    if (value instanceof Uint8Array) return `${value.length} bytes`
    if (typeof value === 'bigint') return String(value)
    if (Array.isArray(value)) return value.map(one => shown(one, name))
    if (typeof value !== 'object' || value === null) return value
    // A URL, or what `url` of a handler makes.
    if ('href' in value) return text(String(value.href))
    return Object.fromEntries(Object.entries(value).map(([inner, one]) => [inner, shown(one, inner)]))
  }
  // The names of its own members are ours: the `key` of a message to Kafka is no secret.
  return Object.fromEntries(Object.entries(request).map(([name, value]) => [name, shown(value, '')]))
}

/** However short. */
const loginsOfQuery =
  /([?&](?:[^=&#]*(?:auth|token|secret|password|credential|api[-_]?key)[^=&#]*|key|sig(?:nature)?)=)[^&#\s"]*/gi

function queryOf(url: unknown): object | undefined {
  const text = typeof url === 'string' ? url : String((url as { href?: string } | undefined)?.href)
  return text.includes('?') && URL.canParse(text) ? Object.fromEntries(new URL(text).searchParams) : undefined
}

/** Half a surrogate pair cannot be percent-encoded: then nobody will have written it so. */
function encoded(secret: string): string {
  try {
    return encodeURIComponent(secret)
  } catch {
    return secret
  }
}
