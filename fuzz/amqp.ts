// AMQP 0-9-1 as a server writes it, in latin1.

export function number(width: 2 | 4 | 8, value: number): string {
  const bytes = Buffer.alloc(8)
  bytes.writeBigUInt64BE(BigInt(value))
  return bytes.toString('latin1', 8 - width)
}
export const short = (text: string): string => String.fromCharCode(text.length) + text
export const long = (text: string): string => number(4, text.length) + text

export const frame = (type: number, channel: number, payload: string): string =>
  `${String.fromCharCode(type)}${number(2, channel)}${number(4, payload.length)}${payload}\xce`
export const method = (channel: number, group: number, id: number, ...fields: string[]): string =>
  frame(1, channel, number(2, group) + number(2, id) + fields.join(''))

/** A table with one of each of the kinds that RabbitMQ itself sends. */
const table = long(
  `${short('ackbox-callback-token')}S${long('v1.a.b')}${short('n')}I${number(4, 7)}${short('t')}F${long('')}${short('a')}A${long(`t\x01`)}`
)

/** The header and the body of a message: its type, its headers and its id. */
export function content(channel: number, body: string): string {
  const properties = number(2, 0b1010_0000_1000_0000) + short('application/json') + table + short('id-1')
  const head = frame(2, channel, number(2, 60) + number(2, 0) + number(8, body.length) + properties)
  return body === '' ? head : head + frame(3, channel, body)
}

/** A regular expression that finds this method in the bytes of a client. */
export const methodPattern = (group: number, id: number): string =>
  [0, group, 0, id].map(byte => `\\x${byte.toString(16).padStart(2, '0')}`).join('')

const start = method(0, 10, 10, '\0\x09', table, long('PLAIN'), long('en_US'))
const tune = method(0, 10, 30, number(2, 2_047), number(4, 131_072), number(2, 60))

/** The opening of the connection and its first channel: a pattern of the client's bytes, and the answer. */
export const opened: (readonly [after: string, answer: string])[] = [
  ['AMQP', start],
  [methodPattern(10, 11), tune],
  [methodPattern(10, 40), method(0, 10, 41, short(''))],
  [methodPattern(20, 10), method(1, 20, 11, long(''))]
]
