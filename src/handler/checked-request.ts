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
    return made
  }
}
