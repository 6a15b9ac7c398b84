// A message of any library: its headers by lower-case name, and its bytes.
import { AdapterError } from './transaction.ts'

/**
 * A message of a library. HTTP: `headers` and `body`. Kafka: `headers` and `value`. NATS: `headers` and `data`. RabbitMQ: `headers` and
 * `body`, or `properties.headers` and `content`. RocketMQ: `properties` and `body`. A Redis stream: its fields as `headers`.
 */
export interface Message {
  /** An object, a Map, pairs, or a list that alternates names and values. */
  headers?: unknown
  properties?: unknown
  /** The bytes or the text as received. */
  body?: unknown
  value?: unknown
  data?: unknown
  content?: unknown
}

export interface ReadMessage {
  headers: ReadonlyMap<string, string>
  payload: string | Uint8Array
}

export function read(message: Message): ReadMessage {
  const fields = fieldsOf(message)
  const headers = new Map(fields.map(([name, value]) => [name.toLowerCase(), textOf(value)]))
  const body = fields.findLast(([name]) => name === 'body')?.[1]
  const given = message.body ?? message.value ?? message.data ?? message.content ?? body
  return { headers, payload: given === undefined ? ownText(fields) : bytesOf(given) }
}

type Field = readonly [name: string, value: {}]

/** In their order, with their names as they came: both are signed if a Redis stream's entry has no `body`. */
function fieldsOf({ headers, properties }: Message): Field[] {
  const inner = (properties as { headers?: unknown } | null | undefined)?.headers
  return Array.from(pairs(headers ?? inner ?? properties)).flatMap(([name, value]) => {
    const last: unknown = Array.isArray(value) ? value.at(-1) : value
    return last === undefined || last === null ? [] : [[textOf(name), last] as const]
  })
}

function pairs(from: unknown): Iterable<readonly [unknown, unknown]> {
  if (typeof from !== 'object' || from === null) return []
  if (Array.isArray(from) && !Array.isArray(from[0]))
    return from.flatMap((name: unknown, at) =>
      at % 2 === 0 ? [[name, from[at + 1] as unknown] as const] : []
    )
  return Symbol.iterator in from ? (from as Iterable<readonly [unknown, unknown]>) : Object.entries(from)
}

const textOf = (value: unknown): string =>
  value instanceof Uint8Array ? Buffer.from(value).toString() : String(value)

function bytesOf(given: unknown): string | Uint8Array {
  if (typeof given === 'string' || given instanceof Uint8Array) return given
  if (given instanceof ArrayBuffer) return new Uint8Array(given)
  // The library has parsed the body. The new text is usually the original one. If it differs, the signature check fails.
  const again = JSON.stringify(given) as string | undefined
  if (again === undefined) throw new AdapterError('The body of this message is neither text, bytes nor JSON.')
  return again
}

/**
 * For an entry of a Redis stream without a field `body`, the signature covers the entry's own fields. They come before those of
 * Ackbox, of which `webhook-id` is the first. A name does not tell them apart: an entry may have its own `traceparent`.
 */
function ownText(fields: readonly Field[]): string {
  const first = fields.findIndex(([name]) => name.toLowerCase() === 'webhook-id')
  const own = first === -1 ? fields : fields.slice(0, first)
  return own.length === 0 ? '' : JSON.stringify(own.flatMap(([name, value]) => [name, textOf(value)]))
}
