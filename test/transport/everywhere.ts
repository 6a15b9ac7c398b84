// Every transport, pointed at one address, for rules that hold over all of them.
import type { Test } from 'tap'
import { brokerVariable, parseBroker, type Broker } from '../../src/transport/broker.ts'
import type { Guard } from '../../src/transport/egress/guard.ts'
import { transportNames, transports, type TransportName } from '../../src/transport/registry.ts'
import type { Outcome } from '../../src/domain/types.ts'
import { sendContext } from './send-context.ts'

/** Not `custom`: a handler's own `send` uses no guard, no broker and no bytes of ours. */
type Guarded = Exclude<TransportName, 'custom'>

export const ways: Record<Guarded, { scheme: string; request: object }> = {
  http: { scheme: 'http', request: {} },
  dubbo: { scheme: 'tri', request: { service: 'com.acme.Points', method: 'onPaid', args: [] } },
  dubbo2: { scheme: 'dubbo', request: { service: 'com.acme.Points', method: 'onPaid', types: [], args: [] } },
  rabbitmq: { scheme: 'amqp', request: { routingKey: 'orders' } },
  kafka: { scheme: 'kafka', request: { topic: 'orders' } },
  rocketmq: { scheme: 'rocketmq', request: { topic: 'orders' } },
  nats: { scheme: 'nats', request: { subject: 'orders.paid' } },
  'redis-stream': { scheme: 'redis', request: { stream: 'orders' } }
}

export const everyTransport = transportNames.filter((name): name is Guarded => name !== 'custom')

export interface Way {
  send(timeoutMs?: number): Promise<Outcome>
  close(): Promise<void>
}

/** The transport `name`, whose only target is `place`. It ends with the test at the latest. */
export async function wayTo(t: Test, name: Guarded, guard: Guard, place: string): Promise<Way> {
  const { scheme, request } = ways[name]
  const brokers = new Map<string, Broker>()
  if (name !== 'http') {
    const broker = parseBroker(name, `${scheme}://${place}`)
    if (typeof broker === 'string') throw new Error(`${brokerVariable(name)} ${broker}`)
    brokers.set(name, broker)
  }
  const log = { info: () => {}, warn: () => {} }
  const transport = (await transports({ guard, brokers, log }, [name]))[name]
  if (!transport) throw new Error(`no transport ${name}`)
  t.teardown(() => transport.close())
  const asked = name === 'http' ? { url: `http://${place}/hook` } : request
  return {
    send: (timeoutMs = 3_000) => transport.send(asked, sendContext({ timeoutMs, raw: '{"n":1}' })),
    close: () => transport.close()
  }
}
