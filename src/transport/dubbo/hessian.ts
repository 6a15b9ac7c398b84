import hessian from 'hessian.js'
import { defined } from '../../domain/optional-members.ts'

/** What a handler's `request` returns for dubbo2. */
export interface Dubbo2Request {
  /** Which provider: the name of a broker in the settings, `dubbo2` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /** The Java type of each parameter: `java.lang.String`, `long`, `com.acme.Order`. */
  types: readonly string[]
  /** One for each of the types. Objects are maps, whose members Dubbo sets by name; a bigint is a long. */
  args: readonly unknown[]
  version?: string
  group?: string
  /** More attachments. */
  attachments?: Record<string, string>
}

/** The body of a generic call in hessian2. */
export function callBody(
  { service, method, types, version = '0.0.0', group }: Dubbo2Request,
  args: JavaArgs,
  attachments: Record<string, string>
): Buffer {
  const encoder = new hessian.EncoderV2()
  // No object comes twice in what `java` made, and to look for each among all before it takes the square of their number.
  encoder._checkRef = () => false
  encoder.write('2.0.2') // of the protocol, not of Dubbo
  encoder.write(service)
  encoder.write(version)
  encoder.write('$invoke')
  encoder.write('Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;')
  encoder.write(method)
  encoder.write({ $class: '[string', $: types })
  encoder.write({ $class: '[object', $: args.java })
  encoder.write({
    $class: 'java.util.HashMap',
    $: {
      ...attachments,
      path: service,
      interface: service,
      version,
      generic: 'true',
      ...defined({ group })
    }
  })
  return encoder.get()
}

/** Arguments as hessian.js writes them. */
export interface JavaArgs {
  java: unknown[]
}

/** Throws on a bigint of more than 64 bits and on an object within itself. */
export const javaArgs = (args: readonly unknown[]): JavaArgs => ({ java: args.map(java) })

/**
 * A bigint as Java's long, bytes as byte[], every other object as a map. Never as hessian.js would read it by itself: a
 * producer's `$class` would choose the Java class, and `{high, low}` be a number.
 */
function java(value: unknown): unknown {
  if (typeof value === 'bigint') {
    if (BigInt.asIntN(64, value) !== value) throw new RangeError('a bigint does not fit in 64 bits')
    return { $class: 'long', $: value.toString() }
  }
  if (Array.isArray(value)) return value.map(java)
  if (typeof value === 'symbol' || value === undefined) return null
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? null : value
  if (value instanceof Uint8Array) return Buffer.from(value)
  const members = Object.entries(value).map(([name, each]) => [name, java(each)] as const)
  return { $class: 'java.util.HashMap', $: Object.fromEntries(members) }
}

export type Returned =
  /** `whole`: false when it was longer than what is read; the value is then its beginning. */
  | { kind: 'value'; value: unknown; whole: boolean }
  | { kind: 'exception'; name: string; message: string }
  | { kind: 'error'; status: number; message: string }

/** Statuses of a response: https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/dubbo/ */
const ok = 20
/** What a body that went well begins with; from 3 on the same with attachments behind. */
const exceptions = new Set([0, 3])
const values = new Set([1, 4])
const nothings = new Set([2, 5])

/** Of a body. What is kept of a result has 16 kB, and `accepted` sees 64 kB. */
const bytesMost = 262_144
/** In a body: an empty map has two bytes there, and hundreds in memory. 64 kB of JSON hold half as many. */
const valuesMost = 65_536
const mapEnd = 0x5a

/** Throws on what is no response in hessian2. */
export function readResponse(status: number, body: Buffer): Returned {
  const { read, seen } = reader(body.subarray(0, bytesMost))
  if (status !== ok) return { kind: 'error', status, message: said(read) }
  const kind = Number(read())
  if (values.has(kind)) {
    try {
      return { kind: 'value', value: read(), whole: true }
    } catch (error) {
      if (!(error instanceof TooMany) && body.length <= bytesMost) throw error
      return { kind: 'value', value: seen[0]?.$ ?? seen[0] ?? null, whole: false }
    }
  }
  if (nothings.has(kind)) return { kind: 'value', value: null, whole: true }
  if (!exceptions.has(kind)) throw new TypeError('no kind of result')
  try {
    read()
  } catch (error) {
    // The name and the message come before a long stack.
    if (body.length <= bytesMost || seen.length === 0) throw error
  }
  const thrown = seen.find(each => className(each.$class).endsWith('Exception')) ?? seen[0]
  return {
    kind: 'exception',
    name: text(thrown?.$?.['exceptionClass'] ?? className(thrown?.$class)),
    message: text(thrown?.$?.['exceptionMessage'] ?? thrown?.$?.['detailMessage'])
  }
}

class TooMany extends Error {}

interface Seen {
  $class?: unknown
  $?: Record<string, unknown>
}

/**
 * The decoder, held to what a body may cost. It follows references as often as they are named: to make an Error of each class
 * called Exception it walks that one's stack, and of a list that is a key it makes a text, each of which a few bytes may
 * refer to thousands of times. So no class is called so here, and only what is no object is a key.
 */
function reader(bytes: Buffer): { read(): unknown; seen: Seen[] } {
  const decoder = new hessian.DecoderV2(bytes)
  const { read, readType, _addRef: addRef, _readObjectDefinition: readDefinition } = decoder
  const seen: Seen[] = []
  let count = 0
  decoder._addRef = object => {
    if (typeof object === 'object' && object !== null) seen.push(object)
    return addRef.call(decoder, object)
  }
  decoder.read = () => {
    if (++count > valuesMost) throw new TooMany('more values than are read')
    return read.call(decoder)
  }
  decoder.readType = () => `${readType.call(decoder) ?? ''}${mark}`
  decoder._readObjectDefinition = () => {
    const made = readDefinition.call(decoder)
    made.name = `${made.name}${mark}`
    return made
  }
  decoder._readMap = (map = {}) => {
    const { byteBuffer } = decoder
    while (byteBuffer.get(byteBuffer.position()) !== mapEnd) {
      const key = decoder.read()
      const value = decoder.read()
      if (typeof key !== 'object' || key === null) own(map, String(key), value)
    }
    byteBuffer.skip(1)
    return map
  }
  return {
    seen,
    read() {
      const value = decoder.read()
      // Of a text that goes on behind the end the decoder makes one all the same
      if (decoder.byteBuffer.position() > bytes.length)
        throw new RangeError('the body is shorter than it says')
      return value
    }
  }
}

/** Behind the name of each class. */
const mark = '\0'
const className = (marked: unknown): string => text(marked).replace(mark, '')

/** `__proto__` is a name like any other. */
const own = (map: object, name: string, value: unknown): void =>
  void Object.defineProperty(map, name, { value, configurable: true, enumerable: true, writable: true })

/** Empty where the text cannot be read: the status is enough. */
function said(read: () => unknown): string {
  try {
    return text(read())
  } catch {
    return ''
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
