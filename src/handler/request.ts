import { isThenable } from '../task/thenable.ts'
import type { TransportName } from './define.ts'
import { nearest } from './nearest.ts'

const fields: Record<TransportName, string[]> = {
  http: ['url', 'method', 'headers', 'body'],
  dubbo: ['broker', 'service', 'method', 'args', 'parameters', 'attachments'],
  dubbo2: ['broker', 'service', 'method', 'types', 'args', 'version', 'group', 'attachments'],
  rabbitmq: ['broker', 'exchange', 'routingKey', 'headers', 'body'],
  kafka: ['broker', 'topic', 'key', 'headers', 'value'],
  rocketmq: ['broker', 'topic', 'tag', 'keys', 'properties', 'group', 'delayMs', 'body'],
  nats: ['broker', 'subject', 'headers', 'payload'],
  'redis-stream': ['broker', 'stream', 'maxlen', 'create', 'fields']
}

/**
 * TypeScript lets a function return members that its type does not have, so a `boddy` would be dropped in silence and the
 * downstream get something else. Here it fails the attempt, and says what was meant.
 */
export function checkedRequest(
  transport: string,
  downstream: string,
  request: (about: unknown) => unknown
): (about: unknown) => unknown {
  const known = fields[transport as TransportName] ?? []
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
        `the request of ${downstream} has no member ${name}: ${meant ? `did you mean ${meant}?` : `there are ${known.join(', ')}`}`
      )
    }
    return made
  }
}
