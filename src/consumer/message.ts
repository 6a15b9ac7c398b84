// A message of any library: its headers by lower-case name, its bytes, and the task in it.
import { AdapterError } from '../adapter/transaction.ts'
import { createHmac, createSecretKey, timingSafeEqual, type KeyObject } from 'node:crypto'

/** True: the message was signed with one of the secrets, at most `toleranceMs` ago. */
export type Verify = (message: ReadMessage, toleranceMs: number) => boolean

/** `secrets`: each is whsec_ and base64. There are two during a rotation. */
export function verifier(secrets: readonly string[]): Verify {
  const keys = secrets.map(keyOf)
  if (keys.length === 0)
    throw new AdapterError('receiver needs a secret: `npx ackbox key secret DOWNSTREAM` prints it.')
  return ({ headers, payload }, toleranceMs) => {
    const id = headers.get('webhook-id')
    const timestamp = headers.get('webhook-timestamp') ?? ''
    const given = (headers.get('webhook-signature') ?? '').split(' ')
    if (!id || !/^\d{1,12}$/.test(timestamp)) return false
    if (Math.abs(Date.now() - Number(timestamp) * 1_000) > toleranceMs) return false
    return keys.some(key => {
      const right = Buffer.from(
        `v1,${createHmac('sha256', key).update(`${id}.${timestamp}.`).update(payload).digest('base64')}`
      )
      return given.some(one => {
        const signature = Buffer.from(one)
        return signature.length === right.length && timingSafeEqual(signature, right)
      })
    })
  }
}

function keyOf(secret: string): KeyObject {
  const text = typeof secret === 'string' ? secret.replace(/^whsec_/, '') : ''
  // Node decodes invalid base64 without an error. The message never contains the secret.
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(text) || Buffer.from(text, 'base64').length < 24)
    throw new AdapterError(
      'A secret of receiver must be whsec_ and base64 of 24 bytes or more: `npx ackbox key secret DOWNSTREAM` prints it.'
    )
  return createSecretKey(text, 'base64')
}

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

/** The task of a message with a valid signature. Only its id, its time and its text are signed. */
export interface ReceivedTask {
  /** The id of the delivery: the same on every attempt, and after an operator's redelivery. */
  webhookId: string
  taskNo: string
  messageCode: string
  sceneType: string
  attempt: number
  /** 1, and one more after each redelivery by an operator. */
  round: number
  /** Ackbox does not send the delivery after this time. */
  forgetAfter: Date
  /** Undefined: Ackbox expects no receipt. */
  callbackUrl: string | undefined
  callbackToken: string | undefined
  /** The payload as text. */
  text: string
  /** The payload as parsed JSON. Throws a SyntaxError if the payload is not JSON. */
  readonly body: unknown
  headers: ReadonlyMap<string, string>
}

/** Used if the header is missing, although Ackbox always sends it: the default of Ackbox. */
const forgetMs = 30 * 86_400_000

export function read(message: Message): ReadMessage {
  const fields = fieldsOf(message)
  const headers = new Map(fields.map(([name, value]) => [name.toLowerCase(), textOf(value)]))
  const body = fields.findLast(([name]) => name === 'body')?.[1]
  const given = message.body ?? message.value ?? message.data ?? message.content ?? body
  return { headers, payload: given === undefined ? ownText(fields) : bytesOf(given) }
}

/** Decodes percent-encoded UTF-8. Returns other text unchanged, because the signature does not cover headers. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text)
  } catch {
    return text
  }
}

export function taskOf({ headers, payload }: ReadMessage): ReceivedTask {
  const header = (name: string): string => headers.get(name) ?? ''
  const text = typeof payload === 'string' ? payload : Buffer.from(payload).toString()
  const forgetAfter = Date.parse(header('ackbox-forget-after'))
  return {
    webhookId: header('webhook-id'),
    taskNo: header('ackbox-task-no'),
    messageCode: header('ackbox-message-code'),
    sceneType: decoded(header('ackbox-scene-type')),
    attempt: Number(header('ackbox-attempt')) || 1,
    round: Number(header('ackbox-round')) || 1,
    forgetAfter: new Date(Number.isNaN(forgetAfter) ? Date.now() + forgetMs : forgetAfter),
    callbackUrl: headers.get('ackbox-callback-url'),
    callbackToken: headers.get('ackbox-callback-token'),
    text,
    get body() {
      return JSON.parse(text) as unknown
    },
    headers
  }
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
