// What an attempt sent, in one form for all transports.
import { hash } from 'node:crypto'
import type { RequestShape } from '../db/request-shapes.ts'
import { requestTexts } from '../domain/redact.ts'
import type { SentRequest } from '../domain/types.ts'
import type { TransportName } from '../handler/define.ts'

/** The part of a request that the transport asked Ackbox to sign. */
export interface SignedRequest {
  /** As the handler made it. JavaScript may return anything. */
  request: unknown
  /** Undefined: the send ended before the transport had a body. */
  payload: string | Uint8Array | undefined
  /** The headers of Ackbox. */
  ours: Readonly<Record<string, string>> | undefined
}

/**
 * The members of a request that name its target, after the broker, and the member with its headers. `type`: it is sent with a
 * content-type. `body`: that header is the body. */
const members: Record<TransportName, { target: string[]; headers?: string; type?: true; body?: string }> = {
  http: { target: ['url'], headers: 'headers', type: true },
  dubbo: { target: ['service', 'method'], headers: 'attachments', type: true },
  dubbo2: { target: ['service', 'method'], headers: 'attachments' },
  custom: { target: [] },
  rabbitmq: { target: ['exchange', 'routingKey'], headers: 'headers' },
  kafka: { target: ['topic'], headers: 'headers' },
  rocketmq: { target: ['topic', 'tag'], headers: 'properties' },
  nats: { target: ['subject'], headers: 'headers' },
  'redis-stream': { target: ['stream'], headers: 'fields', body: 'body' }
}

const mostTarget = 2_048
const mostNames = 100
const mostName = 200

/** `secrets`: those of the settings. Undefined: a member of the request throws when it is read. */
export function sentRequest(
  transport: TransportName,
  { request, payload, ours }: SignedRequest,
  secrets: readonly string[]
): SentRequest | undefined {
  try {
    const made = request as { [name: string]: unknown }
    const parts = ['broker', ...members[transport].target].map(name => textOf(made[name]))
    const target = requestTexts(made, secrets)(parts.filter(Boolean).join(' ')).slice(0, mostTarget)
    return {
      transport,
      ...(transport === 'http' ? { method: (textOf(made['method']) || 'POST').slice(0, mostName) } : {}),
      ...(target === '' ? {} : { target }),
      headerNames: headersOf(transport, { request, ours })
        .slice(0, mostNames)
        .map(([name]) => name.slice(0, mostName)),
      ...(payload === undefined ? {} : { body: { bytes: byteLength(payload), sha256: sha256(payload) } })
    }
  } catch {
    return undefined
  }
}

/** The headers of the handler, that of the transport, and those of Ackbox. Of two with one name the first is sent. */
export function headersOf(
  transport: TransportName,
  { request, ours = {} }: Pick<SignedRequest, 'request' | 'ours'>
): [name: string, value: unknown][] {
  const { headers = '', type, body } = members[transport]
  const given = (request as { [name: string]: unknown })[headers]
  const all: [string, unknown][] = [
    ...Object.entries(typeof given === 'object' && given !== null ? given : {}),
    ...(type ? [['content-type', 'application/json'] as [string, unknown]] : []),
    ...Object.entries(ours)
  ]
  const seen = new Set([body])
  return all.filter(([name]) => {
    const isNew = !seen.has(name.toLowerCase())
    seen.add(name.toLowerCase())
    return isNew
  })
}

/** A URL, or the result of `url` in a handler, has its text in `href`. */
function textOf(value: unknown): string {
  const text = typeof value === 'object' && value !== null && 'href' in value ? value.href : value
  return typeof text === 'string' ? text : ''
}

const byteLength = (payload: string | Uint8Array): number =>
  typeof payload === 'string' ? Buffer.byteLength(payload) : payload.length

const sha256 = (payload: string | Uint8Array): Uint8Array => hash('sha256', payload, 'buffer')

/** What the request has in common with others. Its id is a number that JavaScript can hold: 48 bits. */
export function shapeOf(
  {
    messageCode,
    downstream,
    handlerVersion
  }: Pick<RequestShape, 'messageCode' | 'downstream' | 'handlerVersion'>,
  { transport, method, headerNames }: SentRequest
): RequestShape {
  const facts = { messageCode, downstream, handlerVersion, transport, method: method ?? null, headerNames }
  return { id: hash('sha256', JSON.stringify(facts), 'buffer').readUIntBE(0, 6), ...facts }
}
