import hessian from 'hessian.js'
import { textOf } from '../../runtime/text-of.ts'
import { defined } from '../../domain/optional-members.ts'

/** The result of a handler's `request` for dubbo2. */
export interface Dubbo2Request {
  /** The provider: the name of a broker in the settings, `dubbo2` by default. */
  broker?: string
  /** The interface, `com.acme.Points`. */
  service: string
  method: string
  /** The Java type of each parameter: `java.lang.String`, `long`, `com.acme.Order`. */
  types: readonly string[]
  /** One value for each of the types. An object is sent as a map, whose members Dubbo sets by name; a bigint is a long. */
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
  // The result of `java` contains no object twice, and comparing each object with all earlier ones takes quadratic time.
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

/** Throws on a bigint of more than 64 bits and on an object that contains itself. */
export const javaArgs = (args: readonly unknown[]): JavaArgs => ({ java: args.map(java) })

/**
 * A bigint as Java's long, bytes as byte[], every other object as a map. hessian.js alone would interpret the object: a
 * producer's `$class` would choose the Java class, and `{high, low}` would be a number.
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
  /** `whole`: false if the result was longer than the limit; the value is then only its beginning. */
  | { kind: 'value'; value: unknown; whole: boolean }
  | { kind: 'exception'; name: string; message: string }
  | { kind: 'error'; status: number; message: string }

/** Statuses of a response: https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/dubbo/ */
const ok = 20
/** The first number in the body of an `ok` response; from 3 on, the same kinds with attachments at the end. */
const exceptions = new Set([0, 3])
const values = new Set([1, 4])
const nothings = new Set([2, 5])

/** Bytes of a body that are read. 16 kB of a result are stored, and `accepted` gets 64 kB. */
const bytesMost = 262_144
/** Values in a body: an empty map has two bytes there, but hundreds in memory. 64 kB of JSON hold half as many values. */
const valuesMost = 65_536
const mapEnd = 0x5a

/** Throws if the body is not a response in hessian2. */
export function readResponse(status: number, body: Buffer): Returned {
  const { read, seen } = reader(body.subarray(0, bytesMost))
  if (status !== ok) return { kind: 'error', status, message: errorText(read) }
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
    // A cut body is fine: the name and the message come before a long stack.
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
 * The decoder, with a limit on the cost of a body. The plain decoder makes an Error of each class named Exception by walking its
 * stack, and a text of each list that is a key. A few bytes can refer to the same stack or list thousands of times. So each class
 * name gets a mark here, and keys that are objects are skipped.
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
      if (typeof key !== 'object' || key === null)
        own(map, typeof key === 'string' ? key : textOf(key), value)
    }
    byteBuffer.skip(1)
    return map
  }
  return {
    seen,
    read() {
      const value = decoder.read()
      // The decoder also accepts a text that continues behind the end of the body.
      if (decoder.byteBuffer.position() > bytes.length)
        throw new RangeError('the body is shorter than it says')
      return value
    }
  }
}

/** The suffix of each class name, so that none ends with Exception for the decoder. */
const mark = '\0'
const className = (marked: unknown): string => text(marked).replace(mark, '')

/** Sets a member without treating `__proto__` specially. */
const own = (map: object, name: string, value: unknown): void =>
  void Object.defineProperty(map, name, { value, configurable: true, enumerable: true, writable: true })

/** Empty if the text cannot be read: the status is enough. */
function errorText(read: () => unknown): string {
  try {
    return text(read())
  } catch {
    return ''
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
