import type { SendContext } from '../types.ts'

/** Headers that the transport or Ackbox itself writes: a handler's own would forge or break them. */
const reserved =
  /^(?:webhook-|ackbox-)|^(?:host|content-length|transfer-encoding|connection|keep-alive|upgrade|expect|te|trailer)$/
const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/
// What a header value may hold, by RFC 9110: no CR, LF, NUL, nothing beyond latin1
const fieldValue = /^[\t\x20-\x7e\x80-\xff]*$/

/** Names and values by turns, the handler's first; or what is wrong with the handler's. */
export function headersOf(
  own: Record<string, string>,
  context: Pick<SendContext, 'headers'>,
  body: string | Uint8Array
): string[] | string {
  const headers = ['user-agent', 'ackbox']
  const given = new Set<string>()
  for (const [name, value] of Object.entries(own)) {
    const lower = name.toLowerCase()
    if (!token.test(name)) return 'a header name is not a token'
    if (reserved.test(lower)) return `a handler must not set the header ${lower}`
    if (given.has(lower)) return `the header ${lower} is set twice`
    if (typeof value !== 'string' || !fieldValue.test(value))
      return `the header ${lower} has a character that headers must not have`
    given.add(lower)
    if (lower === 'user-agent') headers[1] = value
    else headers.push(name, value) // a Dubbo provider tells attachments by their case
  }
  if (!given.has('content-type')) headers.push('content-type', 'application/json')
  const ours = context.headers(body)
  for (const name in ours) {
    const value = ours[name]
    if (value !== undefined && !given.has(name)) headers.push(name, value)
  }
  return headers
}
