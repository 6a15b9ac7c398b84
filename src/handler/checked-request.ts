import { isUint8Array } from 'node:util/types'
import { nearest } from '../runtime/nearest.ts'
import { isThenable } from '../runtime/with-timeout.ts'
import type { TransportName } from './define.ts'

const requestFields: Record<TransportName, string[]> = {
  http: ['url', 'method', 'headers', 'body'],
  dubbo: ['broker', 'service', 'method', 'args', 'parameters', 'attachments'],
  dubbo2: ['broker', 'service', 'method', 'types', 'args', 'version', 'group', 'attachments'],
  custom: ['send'],
  rabbitmq: ['broker', 'exchange', 'routingKey', 'headers', 'body'],
  kafka: ['broker', 'topic', 'key', 'headers', 'value'],
  rocketmq: ['broker', 'topic', 'tag', 'keys', 'properties', 'group', 'delayMs', 'body'],
  nats: ['broker', 'subject', 'headers', 'payload'],
  'redis-stream': ['broker', 'stream', 'maxlen', 'create', 'fields']
}

/**
 * TypeScript lets a function return unknown members. So a `boddy` would be ignored, and the downstream would get something
 * else. Here it fails the attempt, and the error suggests the right name.
 */
export function checkedRequest(
  transport: string,
  downstream: string,
  request: (about: unknown) => unknown
): (about: unknown) => unknown {
  const known = requestFields[transport as TransportName] ?? []
  return about => {
    const made = request(about)
    return isThenable(made) ? Promise.resolve(made).then(check) : check(made)
  }

  function check(made: unknown): unknown {
    if (typeof made !== 'object' || made === null) {
      throw new Error(
        `the request of ${downstream} is ${made === null ? 'null' : typeof made}, not an object`
      )
    }
    for (const name of Object.keys(made)) {
      if (known.includes(name)) continue
      const meant = nearest(name, known)
      throw new Error(
        `the request of ${downstream} has the unknown member ${name}: ${meant ? `did you mean ${meant}?` : `the members are ${known.join(', ')}`}`
      )
    }
    return plain(made, known)
  }
}

/**
 * The members, each read once: transports read them later and in other places, where a getter or a Proxy that throws would harm the
 * deliveries of others.
 */
function plain(made: object, known: readonly string[]): { [name: string]: unknown } {
  const copy: { [name: string]: unknown } = {}
  for (const name of known) {
    const value = (made as { [name: string]: unknown })[name]
    if (value === undefined) continue
    // oxlint-disable-next-line typescript/no-base-to-string -- a URL, or the result of `url`; what throws here fails the attempt
    copy[name] = name === 'url' ? String(value) : plainMember(value)
  }
  return copy
}

function plainMember(value: unknown): unknown {
  if (typeof value !== 'object' || value === null || isUint8Array(value)) return value
  return Array.isArray(value) ? Array.from(value as unknown[]) : { ...value }
}
