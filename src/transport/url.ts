// A producer's data enters a URL only through placeholders, only behind the operator's origin, and always encoded.
// This prevents most of SSRF before the guard checks any address.

type Values = Readonly<Record<string, string | undefined>>

let source: Values = process.env
const known = new Set<string>()

/** Sets the source of the operator's values. By default it is the process environment; the demo adds its own defaults. */
export function originsFrom(values: Values): void {
  source = values
  known.clear()
}

/** A URL that `url` built: its origin is the operator's. */
class SafeUrl {
  readonly href: string

  constructor(href: string) {
    this.href = href
  }

  toString(): string {
    return this.href
  }
}
export type { SafeUrl }

/** Matches up to the character behind the authority: later text can no longer change the host. */
const throughOrigin = /^https?:\/\/[^/?#\\@\s]+[/?#]/
/** A path segment of dots only, before the query. One regular expression, since it runs on every send. */
const dotSegment = /^[^]{8}[^/]*\/(?:[^?#]*\/)?(?:\.|%2e){1,2}(?:[/?#]|$)/i

/**
 * url`${env.WAREHOUSE_URL}/orders/${body.orderId}/paid`: each placeholder is percent-encoded. Scheme, host and port must be
 * literal, or all come from one value of `env` (or an earlier `url`) placed first. Throws on anything else: the attempt then
 * fails, and nothing is sent.
 */
export function url(literals: TemplateStringsArray, ...values: unknown[]): SafeUrl {
  let href = literals[0] ?? ''
  let first = 0
  if (href === '' && values.length > 0) {
    href = origin(values[0]) + (literals[1] ?? '')
    first = 1
  }
  if (first < values.length && !throughOrigin.test(href)) {
    throw new TypeError(
      'url: scheme, host and port must be written out, or come from one env value placed first'
    )
  }
  for (let i = first; i < values.length; i++)
    href += encoded(values[i], i, literals) + (literals[i + 1] ?? '')
  refuseDots(href)
  return new SafeUrl(href)
}

function origin(value: unknown): string {
  if (value instanceof SafeUrl) return value.href
  if (typeof value !== 'string' || !isOperators(value)) {
    throw new TypeError('url: the first placeholder must come from env and hold scheme, host and port')
  }
  // `http://host/` and `/path` would make two slashes, another path for many servers.
  return value.endsWith('/') ? value.slice(0, -1) : value
}

function isOperators(value: string): boolean {
  if (known.has(value)) return true
  if (!/^https?:\/\//.test(value) || !Object.values(source).includes(value)) return false
  known.add(value)
  return true
}

function encoded(value: unknown, index: number, literals: readonly string[]): string {
  if (typeof value === 'string') return encodeURIComponent(value)
  if (typeof value === 'number' || typeof value === 'bigint' || typeof value === 'boolean')
    return String(value)
  const kind = value === null ? 'null' : typeof value
  const [before] = /(?:\/[^/?&=]*)?[/?&][^/?&=]*=?$/.exec(literals[index] ?? '') ?? []
  throw new TypeError(
    `url: placeholder ${index + 1} is ${kind}, not text${before ? `: it follows ${before}` : ''}${place()}`
  )
}

/** The line of the handler: of whoever called `url`. */
function place(): string {
  const caller: { stack?: string } = {}
  Error.captureStackTrace(caller, url)
  const [, file, line] = /\/([^/\n]+):(\d+):\d+\)?$/m.exec(caller.stack ?? '') ?? []
  return file === undefined ? '' : `, in ${file}, line ${line}`
}

/** encodeURIComponent does not encode dots, and a segment `..` would leave the path that the operator wrote. */
function refuseDots(href: string): void {
  if (dotSegment.test(href)) throw new TypeError('url: a path segment of dots only')
}
