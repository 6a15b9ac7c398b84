import { once } from 'node:events'
import { createServer, type AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { guard, type Guard } from '../../src/transport/guard.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import type { TransportDeps } from '../../src/transport/transport.ts'

export interface Said {
  message: string
  [field: string]: unknown
}

/** What a transport is built of: its only broker, under its own name, and a guard that lets it through. */
export function only(name: string, url: string, how?: Guard): TransportDeps & { said: Said[] } {
  const broker = parseBroker(name, url)
  if (typeof broker === 'string') throw new Error(broker)
  const said: Said[] = []
  const say = (fields: object, message: string): void => void said.push({ ...fields, message })
  return {
    guard: how ?? guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map<string, Broker>([[name, broker]]),
    log: { info: say, warn: say },
    said
  }
}

/** Loopback is denied. */
export const strict = (): Guard => guard({ allow: [], embedded: false, deny: [] })

/** A port that counts who comes, and tells them nothing. */
export async function listener(t: Test): Promise<{ port: number; connections(): number }> {
  let connections = 0
  const server = createServer(socket => {
    connections++
    socket.on('error', () => {})
    t.teardown(() => socket.destroy())
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(() => server.close())
  return { port: (server.address() as AddressInfo).port, connections: () => connections }
}
