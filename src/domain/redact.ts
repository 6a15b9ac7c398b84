// A callback token (domain/tokens.ts) and a signature of Standard Webhooks. The start of each is public, the rest is secret.
import type { AttemptEnd, Outcome } from './types.ts'

const token = /(v1\.[A-Za-z0-9_-]{8}\.[0-9a-z]{1,9}\.[a-z][a-z0-9-]{0,31}\.[1-9][0-9]{0,9})\.[A-Za-z0-9_-]+/g
// As sent, in JSON with escaped slashes, or percent-encoded.
const signature = /v1(?:,|%2C)(?:\\?[A-Za-z0-9+/]|%2[BF]){20,}(?:=|%3D|\\u003d)?/gi
// An API key (db/api-keys.ts) that a caller put in the wrong place.
const key = /(?:\b|(?<=%[0-9a-f]{2}))ack_[\w-]{24,}/gi
/** The start of each of these three. */
const any = /v1[.,%]|ack_/i
/** ASCII in UTF-16, read byte by byte. Little- and big-endian differ only in the position of the outermost NUL. */
const wide = /[!-~](?:\0[!-~]){7,}/g

/**
 * Masks the tokens and signatures that an attempt sent. If a service echoes its request, Ackbox would otherwise store them
 * and show them to every reader of tasks, who could then send a receipt. They are found by their shape: a truncated one, or
 * one of an earlier attempt, is masked too.
 */
export function redact(text: string): string {
  // Most texts contain no secret, so one search replaces three.
  const shown = any.test(text)
    ? text.replace(token, '$1.[masked]').replace(signature, 'v1,[masked]').replace(key, 'ack_[masked]')
    : text
  return shown.includes('\0') ? shown.replace(wide, maskedWide) : shown
}

const isAscii = (char = '\0'): boolean => char >= '!' && char <= '~'

function maskedWide(run: string, at: number, all: string): string {
  const text = run.replaceAll('\0', '')
  let shown = redact(text)
  // ASCII next to it: the text may be big-endian. Then the first character belongs to the text before it.
  if (shown === text && (isAscii(all[at - 1]) || isAscii(all[at + run.length])))
    shown = run.slice(0, 1) + redact(text.slice(1))
  return shown === text ? run : shown.split('').join('\0')
}

/** The same for bytes of any encoding. Returns the same object if nothing is masked. */
export function redactBytes(bytes: Uint8Array): Uint8Array {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1')
  const shown = redact(text)
  return shown === text ? bytes : Buffer.from(shown, 'latin1')
}

/** The end of an attempt as it may be logged and traced: the reason may quote an answer, and so what was sent. */
export function redactEnd(end: AttemptEnd): AttemptEnd {
  if (!('reason' in end) && end.warning === undefined) return end
  return {
    ...end,
    ...('reason' in end ? { reason: redact(end.reason) } : {}),
    ...(end.warning === undefined ? {} : { warning: redact(end.warning) })
  }
}

/** Names of headers and query parameters that hold credentials. */
const login = /auth|cookie|token|secret|password|credential|api[-_]?key|^key$|^sig(?:n|nature)?$/i
const isLogin = (name: string): boolean => login.test(name)
/** `Ocp-Apim-Subscription-Key`, `x-functions-key`, `accessKey`: but many keys that end like this only order or group messages. */
const isCredential = (name: string): boolean =>
  isLogin(name) ||
  /signature|passw|pwd|[-_]sign$/i.test(name) ||
  (/key$/i.test(name) && !/idempot|order|partition|routing|message|dedup|sort|cache|biz/i.test(name))
/** A shorter value is not treated as a secret: it would match in every answer. */
const shortest = 8

/** The bytes of an answer that are kept. */
export const answerLimit = 16_384
/** No transport cuts to fewer characters what others wrote. */
const reasonLimit = 200

/**
 * The outcome without the credentials of the handler's request. Many downstreams echo the request in their error pages. Ackbox
 * would then store the downstream's key and show it to every reader of tasks. Only whole credentials are masked: who may choose
 * a part of an answer, such as an order's number, could else guess a credential character by character. A text that was cut
 * loses its end instead, whatever it is.
 */
export function redactRequestSecrets(outcome: Outcome, request: unknown): Outcome {
  const secrets = secretsOf(request)
  if (secrets.length === 0) return outcome
  const hide = hider(secrets)
  const hideReason = (text: string): string =>
    text.length < reasonLimit ? hide(text) : withoutLast(hide(text), secrets)
  const { answer, headers, warning } = outcome
  // With a warning the answer may have been cut anywhere.
  const isCut = warning !== undefined || (answer?.length ?? 0) >= answerLimit
  const shown = {
    ...outcome,
    ...(answer === undefined ? {} : { answer: hideIn(answer, hide, isCut ? longestPart(secrets) : 0) }),
    ...(headers === undefined
      ? {}
      : { headers: headers.map(([name, value]): [string, string] => [name, hide(value)]) }),
    ...(warning === undefined ? {} : { warning: hideReason(warning) })
  }
  return shown.kind === 'delivered' ? shown : { ...shown, reason: hideReason(shown.reason) }
}

/** The bytes of the longest part of a secret that is not all of it, in any of the encodings. */
const longestPart = (secrets: string[]): number =>
  Math.max(...secrets.map(secret => Math.max(Buffer.byteLength(secret), 2 * secret.length))) - 1

/** A cut text without its last word, which may be a part of a secret, or without more if a secret has several words. */
function withoutLast(text: string, secrets: string[]): string {
  const isOneWord = secrets.every(secret => !/\s/.test(secret.replace(/^(?:basic|bearer) +/i, '')))
  const most = Math.max(0, text.length - longestPart(secrets))
  const end = isOneWord ? Math.max(most, text.lastIndexOf(' ')) : most
  return `${text.slice(0, end)}...`
}

/** A secret in one encoding. Each byte is a character here, as in an answer read as Latin-1. */
interface Encoded {
  secret: string
  mask: string
}

const mask = '[masked]'
// Little-endian first: it also matches big-endian text, one byte later, and leaves the same bytes.
const encodings: ((text: string) => Buffer)[] = [
  text => Buffer.from(text),
  text => Buffer.from(text, 'utf16le'),
  text => Buffer.from(text, 'utf16le').swap16()
]

/** Masks whole secrets. */
function hider(secrets: string[]): (text: string) => string {
  let others: Encoded[] | undefined
  return text => {
    const shown = secrets.reduce((left, secret) => left.replaceAll(secret, mask), text)
    // oxlint-disable-next-line eslint/no-control-regex -- only text that is not ASCII can be in another encoding
    if (!/[^\x01-\x7f]/.test(text)) return shown
    others ??= encodings.flatMap(encode =>
      secrets.map(secret => ({
        secret: encode(secret).toString('latin1'),
        mask: encode(mask).toString('latin1')
      }))
    )
    return others.reduce((left, one) => left.replaceAll(one.secret, one.mask), shown)
  }
}

/** `cut`: the number of last bytes that are left out. */
function hideIn(answer: Uint8Array, hide: (text: string) => string, cut: number): Uint8Array {
  const text = Buffer.from(answer.buffer, answer.byteOffset, answer.byteLength).toString('latin1')
  const hidden = hide(text)
  const shown = hidden.slice(0, Math.max(0, hidden.length - cut))
  return shown === text ? answer : Buffer.from(shown, 'latin1')
}

/** `Bearer …`, `Basic …`: the rest is the secret, and an echo may contain it alone. */
const scheme = /^\w+ +/

/** The credentials in its headers, attachments and query, as they are and as an echo may encode them, the longest first. */
function secretsOf(request: unknown): string[] {
  const { headers, attachments, url } = (request ?? {}) as { [name: string]: unknown }
  const found = new Set<string>()
  for (const named of [headers, attachments, queryOf(url)]) {
    if (typeof named !== 'object' || named === null) continue
    for (const [name, value] of Object.entries(named)) {
      if (typeof value !== 'string' || !isCredential(name)) continue
      for (const secret of [value, value.replace(scheme, '')])
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

export const isSecretSetting = (name: string): boolean => isCredential(name) || /key$/i.test(name)

/** The values of settings whose names mark them as secrets, as a request may contain them. */
export const secretSettings = (settings: Readonly<Record<string, string | undefined>>): string[] =>
  longestFirst(
    new Set(
      Object.entries(settings).flatMap(([name, value = '']) => (isSecretSetting(name) ? formsOf(value) : []))
    )
  )

/**
 * A handler's request as shown to people: without its credentials, without `secrets`, and with the number of bytes for bytes.
 * Nothing in it may have been cut: only whole secrets are masked.
 */
export function shownRequest(request: object, secrets: readonly string[]): Record<string, unknown> {
  const text = requestTexts(request, secrets)
  const shown = (value: unknown, name: string, isSecret: (name: string) => boolean): unknown => {
    if (typeof value === 'string') return isSecret(name) ? mask : text(value)
    if (value instanceof Uint8Array) return `${value.length} bytes`
    if (typeof value === 'bigint') return String(value)
    if (Array.isArray(value)) return value.map(element => shown(element, name, isSecret))
    if (typeof value !== 'object' || value === null) return value
    // A URL, or the result of `url` in a handler.
    if ('href' in value && typeof value.href === 'string') return text(value.href)
    return Object.fromEntries(
      Object.entries(value).map(([inner, member]) => [inner, shown(member, inner, isSecret)])
    )
  }
  // Ackbox defines the names at the top level: the `key` of a message to Kafka is not a secret.
  return Object.fromEntries(
    Object.entries(request).map(([name, value]) => [
      name,
      shown(value, '', name === 'headers' || name === 'attachments' ? isCredential : isLogin)
    ])
  )
}

/** Shows a text that belongs to this request: its target, its body, the error of its hook. */
export function requestTexts(request: unknown, secrets: readonly string[]): (text: string) => string {
  const hide = hider(longestFirst([...secretsOf(request), ...secrets]))
  return text => redact(hide(text.replace(userOfUrl, `$1${mask}@`).replace(loginsOfQuery, `$1${mask}`)))
}

/** A header as it is shown. */
export const shownHeader = (name: string, value: string, text: (value: string) => string): string =>
  isCredential(name) ? mask : text(value)

/** The user and the password in a URL. No request with them is sent, but a handler may make one. */
const userOfUrl = /(\bhttps?:\/\/)[^/?#\s"@]*@/gi

/**
 * Credentials in a query, of any length. A name ends at the next `?` too, so that no two names overlap: else the time would grow
 * with the square of a text of many `?`, or worse.
 */
const loginsOfQuery =
  /([?&](?:(?=[^=&#?]*(?:auth|token|secret|passw|pwd|credential|signature|(?:api|access|app|subscription)[-_]?key))[^=&#?]*|key|sig(?:n|nature)?)=)[^&#\s"]*/gi

function queryOf(url: unknown): object | undefined {
  const text = typeof url === 'string' ? url : String((url as { href?: string } | undefined)?.href)
  return text.includes('?') && URL.canParse(text) ? Object.fromEntries(new URL(text).searchParams) : undefined
}

/** Half a surrogate pair cannot be percent-encoded, so no echo contains it in that form. */
function encoded(secret: string): string {
  try {
    return encodeURIComponent(secret)
  } catch {
    return secret
  }
}
