import hessian from 'hessian.js'
import type { Dubbo2Request } from './request.ts'

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
      ...(group === undefined ? {} : { group })
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
  | { kind: 'value'; value: unknown }
  | { kind: 'exception'; name: string; message: string }
  | { kind: 'error'; status: number; message: string }

/** Statuses of a response: https://dubbo.apache.org/en/docs3-v2/java-sdk/reference-manual/protocol/dubbo/ */
const ok = 20
/** What a body that went well begins with; from 3 on the same with attachments behind. */
const exceptions = new Set([0, 3])
const values = new Set([1, 4])
const nothings = new Set([2, 5])

/** Throws on what is no response in hessian2. */
export function readResponse(status: number, body: Buffer): Returned {
  const decoder = new hessian.DecoderV2(body)
  if (status !== ok) return { kind: 'error', status, message: said(decoder) }
  // The decoder makes an Error of every class called Exception and drops its fields: they are taken on the way, where they
  // are still empty but will be filled.
  const raw: { $class?: unknown; $?: Record<string, unknown> }[] = []
  const addRef = decoder._addRef
  decoder._addRef = function (object: unknown) {
    if (typeof object === 'object' && object !== null && '$class' in object) raw.push({ ...object })
    return addRef.call(decoder, object)
  }
  const kind = Number(decoder.read())
  if (values.has(kind)) return { kind: 'value', value: decoder.read() }
  if (nothings.has(kind)) return { kind: 'value', value: null }
  if (!exceptions.has(kind)) throw new TypeError('no kind of result')
  decoder.read()
  const thrown = raw.find(each => String(each.$class).endsWith('Exception')) ?? raw[0]
  return {
    kind: 'exception',
    name: text(thrown?.$?.['exceptionClass'] ?? thrown?.$class),
    message: text(thrown?.$?.['exceptionMessage'] ?? thrown?.$?.['detailMessage'])
  }
}

/** The status says enough when its text cannot be read. */
function said(decoder: { read(): unknown }): string {
  try {
    return text(decoder.read())
  } catch {
    return ''
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
