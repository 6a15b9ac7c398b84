import hessian from 'hessian.js'
import type { Dubbo2Request } from './request.ts'

/** The body of a generic call in hessian2. Throws on what it cannot write. */
export function callBody(
  { service, method, types, args, version = '0.0.0', group }: Dubbo2Request,
  attachments: Record<string, string>
): Buffer {
  const encoder = new hessian.EncoderV2()
  encoder.write('2.0.2') // of the protocol, not of Dubbo
  encoder.write(service)
  encoder.write(version)
  encoder.write('$invoke')
  encoder.write('Ljava/lang/String;[Ljava/lang/String;[Ljava/lang/Object;')
  encoder.write(method)
  encoder.write({ $class: '[string', $: types })
  encoder.write({ $class: '[object', $: args.map(java) })
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

/** A bigint as Java's long; whole numbers stay ints, everything else as hessian has it. */
function java(value: unknown): unknown {
  if (typeof value === 'bigint') return { $class: 'long', $: value.toString() }
  if (Array.isArray(value)) return value.map(java)
  if (typeof value !== 'object' || value === null || value instanceof Date || value instanceof Uint8Array)
    return value ?? null
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, java(each)]))
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

/** Throws on what is no response in hessian2. */
export function readResponse(status: number, body: Buffer): Returned {
  const decoder = new hessian.DecoderV2(body)
  if (status !== ok) return { kind: 'error', status, message: text(decoder.read()) }
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
  if (!exceptions.has(kind)) return { kind: 'value', value: null }
  decoder.read()
  const thrown = raw.find(each => String(each.$class).endsWith('Exception')) ?? raw[0]
  return {
    kind: 'exception',
    name: text(thrown?.$?.['exceptionClass'] ?? thrown?.$class),
    message: text(thrown?.$?.['exceptionMessage'] ?? thrown?.$?.['detailMessage'])
  }
}

const text = (value: unknown): string => (typeof value === 'string' ? value : '')
