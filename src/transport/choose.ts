import { brokerVariable, schemesOf, transportOf, type Broker } from './broker.ts'
import { Failure } from './guard.ts'

/** The broker that a request names, or the one that is called as its transport. Throws a Failure that says what to set. */
export function chosen(
  brokers: ReadonlyMap<string, Broker>,
  transport: string,
  name: string = transport
): Broker {
  const broker = brokers.get(name)
  if (broker && transportOf(broker.scheme) === transport) return broker
  throw new Failure({
    kind: 'failed',
    reason: broker
      ? `bad_request: the broker ${name} is ${broker.scheme}://, not ${schemesOf(transport).join(' or ')}`
      : `bad_request: there is no broker ${name}: set ${brokerVariable(name)}`
  })
}
