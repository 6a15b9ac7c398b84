// The headers from undici: names and values alternate, as latin1 bytes, in the order of arrival.
export type RawHeaders = Buffer[]

const headersStored = 50
const headerBytesStored = 8_192

const [tab, space, del] = [9, 32, 127]

/**
 * The headers without white space around their values (RFC 9112, section 5). Undefined: a value has a control character, which no
 * header may have. A line break of a continued line is gone already, the white space behind it is left (section 5.2).
 */
export function cleaned(raw: RawHeaders): RawHeaders | undefined {
  for (let i = 1; i < raw.length; i += 2) {
    const value = raw[i]
    if (!value) continue
    // By index: the iterator of a Buffer costs three times as much.
    for (let at = 0; at < value.length; at++) {
      const byte = value[at] ?? 0
      if ((byte < space && byte !== tab) || byte === del) return undefined
    }
    raw[i] = trimmed(value)
  }
  return raw
}

function trimmed(value: Buffer): Buffer {
  let [start, end] = [0, value.length]
  while (start < end && isBlank(value[start])) start++
  while (end > start && isBlank(value[end - 1])) end--
  return end - start === value.length ? value : value.subarray(start, end)
}

const isBlank = (byte: number | undefined): boolean => byte === space || byte === tab

/** The first value of a header, by its lower case name. */
export function header(raw: RawHeaders, name: string): string | undefined {
  for (let i = 0; i < raw.length; i += 2) {
    if (isNamed(raw[i], name)) return raw[i + 1]?.toString('latin1')
  }
  return undefined
}

/** The elements of a header that is a list, in lower case: a repeated header continues the list (RFC 9110, section 5.3). */
export function listed(raw: RawHeaders, name: string): string[] {
  const elements: string[] = []
  for (let i = 0; i < raw.length; i += 2) {
    if (!isNamed(raw[i], name)) continue
    for (const element of raw[i + 1]?.toString('latin1').toLowerCase().split(',') ?? [])
      if (element.trim() !== '') elements.push(element.trim())
  }
  return elements
}

/** Compares the length first: most names differ in it, and need no conversion to text. */
const isNamed = (key: Buffer | undefined, name: string): boolean =>
  key?.length === name.length && key.toString('latin1').toLowerCase() === name

/** The headers that are stored as evidence. A cookie would be a secret in our tables, and is not needed. */
export function storedHeaders(raw: RawHeaders): [name: string, value: string][] {
  const stored: [string, string][] = []
  let bytes = 0
  for (let i = 0; i < raw.length && stored.length < headersStored; i += 2) {
    const name = raw[i]?.toString('latin1').toLowerCase() ?? ''
    const value = raw[i + 1]
    if (!value || name === 'set-cookie') continue
    bytes += name.length + value.length
    if (bytes > headerBytesStored) break
    stored.push([name, value.toString('latin1')])
  }
  return stored
}

/** Whether a single header is longer than servers commonly accept. */
export function hasLongHeader(raw: RawHeaders, limit: number): boolean {
  for (let i = 0; i < raw.length; i += 2) {
    if ((raw[i]?.length ?? 0) + (raw[i + 1]?.length ?? 0) > limit) return true
  }
  return false
}

export function joined(raw: RawHeaders): Record<string, string> {
  // Without a prototype: a header may be called __proto__.
  const headers = Object.create(null) as Record<string, string>
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i]?.toString('latin1').toLowerCase() ?? ''
    const value = raw[i + 1]?.toString('latin1') ?? ''
    headers[name] = name in headers ? `${headers[name]}, ${value}` : value
  }
  return headers
}
