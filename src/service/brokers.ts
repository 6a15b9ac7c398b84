// The brokers of the environment: BROKER_…, BROKERS_JSON, and those that RECEIPTS_FROM names.
import { isServiceLink } from './service-links.ts'
import { list, type Settings } from './settings.ts'
import { bringsReceipts } from '../transport/receipt-readers.ts'
import { brokerName, brokerVariable, parseBroker, transportOf, type Broker } from '../transport/broker.ts'

/** A variable `BROKER_…` overrides BROKERS_JSON. No message repeats a URL: it may hold a password. */
export function readBrokers(
  env: Record<string, string | undefined>,
  json = '{}'
): { brokers: Map<string, Broker>; wrong: string[] } {
  const brokers = new Map<string, Broker>()
  const wrong: string[] = []
  const read = (variable: string, name: string, url: unknown): void => {
    const broker = typeof url === 'string' ? parseBroker(name, url) : 'must be a URL in quotes'
    if (typeof broker === 'string') wrong.push(`${variable} ${broker}`)
    else brokers.set(name, broker)
  }
  try {
    const given: unknown = JSON.parse(json)
    if (typeof given !== 'object' || given === null || Array.isArray(given)) throw new TypeError()
    for (const [name, url] of Object.entries(given)) {
      if (brokerName.test(name)) read(`BROKERS_JSON: ${name}`, name, url)
      else wrong.push(`BROKERS_JSON: ${JSON.stringify(name)} must be 1 to 32 small letters, digits or '-'`)
    }
  } catch {
    wrong.push('BROKERS_JSON must be a JSON object: {"name":"kafka://host:9092"}')
  }
  for (const [variable, url] of Object.entries(env)) {
    const name = variable.slice('BROKER_'.length).toLowerCase().replaceAll('_', '-')
    if (!variable.startsWith('BROKER_') || !url || isServiceLink(variable, url)) continue
    if (brokerName.test(name) && brokerVariable(name) === variable) read(variable, name, url)
    else wrong.push(`${variable} names no broker: BROKER_ and 1 to 32 capital letters, digits or _`)
  }
  return { brokers, wrong }
}

export function wrongReceipts(
  { RECEIPTS_FROM = '' }: Settings,
  brokers: ReadonlyMap<string, Broker>
): string[] {
  return list(RECEIPTS_FROM).flatMap(name => {
    const broker = brokers.get(name)
    if (!broker) return [`RECEIPTS_FROM names ${name}, which is not a broker: set ${brokerVariable(name)}`]
    return bringsReceipts(transportOf(broker.scheme))
      ? []
      : [
          `RECEIPTS_FROM names ${name}, a ${broker.scheme}://: receipts are read from RabbitMQ, Kafka, RocketMQ, NATS and Redis streams`
        ]
  })
}
