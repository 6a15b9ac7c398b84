// The text of values that others made. Handlers, their schemas and libraries may throw or return anything that JavaScript has.

/** `instanceof Error` that never throws: a Proxy may have a trap for it. */
export function isError(value: unknown): value is Error {
  try {
    // oxlint-disable-next-line ackbox/no-raw-error -- the place where the check is safe
    return value instanceof Error
  } catch {
    return false
  }
}

/** The `code` of an error of Node or of a library, if it has one. */
export function codeOf(err: unknown): string | undefined {
  const code = isError(err) ? memberOf(err, 'code') : undefined
  return typeof code === 'string' || typeof code === 'number' ? String(code) : undefined
}

/** Undefined if reading it throws. */
export function memberOf(value: object, name: string): unknown {
  try {
    return (value as { [name: string]: unknown })[name]
  } catch {
    return undefined
  }
}

/**
 * The text of any value, of at most `most` characters. It never throws, its time does not grow with the value, and PostgreSQL can store
 * the text: it has neither NUL nor half a surrogate pair.
 */
export function textOf(value: unknown, most = 200): string {
  return storable(rawText(value, most)).slice(0, most).replace(halfPairs, replacement)
}

/** The same, of an error with its name: `TypeError: …`. */
export const namedTextOf = (value: unknown, most = 200): string =>
  isError(value) ? `${textOf(memberOf(value, 'name'), 50)}: ${textOf(value, most)}` : textOf(value, most)

const replacement = '\uFFFD'
const halfPairs = /\p{Surrogate}/gu
/** ASCII in UTF-16, read byte by byte. As plain text it is readable, and a secret in it is found. */
const wide = /[!-~](?:\0[!-~]){3,}/g

const storable = (text: string): string =>
  text
    .replace(wide, run => run.replaceAll('\0', ''))
    .replaceAll('\0', replacement)
    .replace(halfPairs, replacement)

/** An error inside others, such as the first one of an AggregateError, is looked for this deep. They may contain each other. */
const deepest = 5

function rawText(value: unknown, most: number, depth = 0): string {
  switch (typeof value) {
    case 'string':
      return value.slice(0, most)
    case 'bigint':
      // The text of a long one takes time that grows with the square of its length.
      return BigInt.asIntN(128, value) === value ? String(value) : 'a bigint'
    case 'symbol':
      return `Symbol(${(value.description ?? '').slice(0, most)})`
    case 'function':
      return 'a function'
    case 'object':
      return value === null ? 'null' : objectText(value, most, depth)
    case 'number':
    case 'boolean':
    case 'undefined':
      return String(value)
  }
}

function objectText(value: object, most: number, depth: number): string {
  const message = memberOf(value, 'message')
  if (typeof message === 'string' && message !== '') return message.slice(0, most)
  if (!isError(value)) return outlineOf(value, most)
  const inner = memberOf(value, 'errors')
  const cause = (Array.isArray(inner) ? memberOf(inner, '0') : undefined) ?? memberOf(value, 'cause')
  if (cause !== undefined && depth < deepest) return rawText(cause, most, depth + 1)
  const name = memberOf(value, 'name')
  return typeof name === 'string' && name !== '' ? name.slice(0, most) : 'an error without a message'
}

/** As JSON, as far as it fits: a handler may throw the answer of its downstream. */
function outlineOf(value: object, most: number): string {
  const room = { left: most }
  try {
    return outline(value, room, 0)
  } catch {
    return 'an object without a text'
  }
}

function outline(value: unknown, room: { left: number }, depth: number): string {
  const spent = (text: string): string => {
    room.left -= text.length
    return text
  }
  if (typeof value === 'string') return spent(JSON.stringify(value.slice(0, Math.max(0, room.left))))
  if (typeof value !== 'object' || value === null) return spent(rawText(value, Math.max(0, room.left)))
  if (ArrayBuffer.isView(value)) return spent(`${value.byteLength} bytes`)
  if (depth > deepest) return spent('…')
  const parts: string[] = []
  const isFull = (): boolean => (room.left -= 2) <= 0
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length && !isFull(); at++)
      parts.push(outline(memberOf(value, String(at)), room, depth + 1))
    return `[${parts.join(',')}]`
  }
  for (const name in value) {
    if (isFull()) break
    parts.push(`${outline(name, room, depth)}:${outline(memberOf(value, name), room, depth + 1)}`)
  }
  return `{${parts.join(',')}}`
}
