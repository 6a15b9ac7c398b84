import t from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { rabbitmqTransport, type RabbitmqRequest } from '../../src/transport/rabbitmq/rabbitmq.ts'
import { verdict } from '../../src/transport/rabbitmq/failure.ts'
import { brokenBy } from '../../src/transport/rabbitmq/dial.ts'
import { sendContext } from './send-context.ts'

t.test('what a handler must not ask for is said before anything is connected', async t => {
  const brokers = new Map([
    ['rabbitmq', parseBroker('rabbitmq', 'amqp://127.0.0.1:1') as Broker],
    ['streams', parseBroker('streams', 'kafka://127.0.0.1:1') as Broker]
  ])
  const ways = rabbitmqTransport({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers,
    log: { info: () => {}, warn: () => t.fail('it connected') }
  })
  t.teardown(() => ways.close())
  const wrong: [unknown, RegExp][] = [
    [undefined, /no request/],
    [null, /no request/],
    [{}, /routingKey/],
    [{ routingKey: 7 }, /routingKey/],
    // The client would cut it, even in the middle of a character, and the message would be routed elsewhere
    [{ routingKey: 'é'.repeat(128) }, /routingKey must be text of at most 255 bytes/],
    [{ routingKey: '', exchange: 'x'.repeat(256) }, /exchange/],
    [{ routingKey: 'a', exchange: null }, /exchange/],
    [{ routingKey: 'a', body: { a: 1 } }, /body/],
    [{ routingKey: 'a', broker: 7 }, /broker/],
    [{ routingKey: 'a', broker: 'nobody' }, /the broker nobody is not set: set BROKER_NOBODY/],
    [{ routingKey: 'a', broker: 'streams' }, /kafka:\/\/, not amqp:\/\//],
    [{ routingKey: 'a', headers: 'x' }, /headers/],
    [{ routingKey: 'a', headers: { '': 'x' } }, /header name/],
    [{ routingKey: 'a', headers: { n: 7 } }, /header n must be text/],
    [{ routingKey: 'a', headers: { 'Webhook-Id': 'forged' } }, /must not set the header webhook-id/],
    [{ routingKey: 'a', headers: { 'ackbox-new': 'x' } }, /must not set the header ackbox-new/],
    [{ routingKey: 'a', headers: { CC: 'b' } }, /header CC/],
    [{ routingKey: 'a', headers: { 'content-type': 'x'.repeat(256) } }, /content-type/],
    [{ routingKey: 'a', headers: { long: 'x'.repeat(8_000) } }, /at most 7000/]
  ]
  for (const [request, reason] of wrong) {
    const outcome = await ways.send(request as RabbitmqRequest, sendContext())
    t.match(outcome, { kind: 'failed', reason: /^bad_request: / })
    t.match(outcome, { reason })
  }
})

t.test('whose fault it was that the server closed a channel', async t => {
  const mine = { exchange: 'events', routingKey: 'order.paid', bytes: 100 }
  const closed = (code: string, text: string) => ({ code, text })
  const missing = closed('NOT_FOUND', "BasicPublish: NOT_FOUND - no exchange 'events' in vhost '/'")
  const large = closed(
    'PRECONDITION_FAILED',
    'BasicPublish: PRECONDITION_FAILED - message size 200 is larger than configured max size 150'
  )
  const older = closed(
    'PRECONDITION_FAILED',
    'PRECONDITION_FAILED - message size 200 larger than max size 150'
  )
  const topic = closed(
    'ACCESS_REFUSED',
    "BasicPublish: ACCESS_REFUSED - write access to topic 'secret' in exchange 'events' in vhost '/' refused for user 'clerk'"
  )
  const exchange = closed(
    'ACCESS_REFUSED',
    "BasicPublish: ACCESS_REFUSED - access to exchange 'events' in vhost '/' refused for user 'clerk'"
  )
  const other = closed('PRECONDITION_FAILED', 'PRECONDITION_FAILED - something new')

  t.match(verdict(missing, mine, false), { kind: 'failed', reason: /^target_missing/ })
  t.equal(verdict(large, mine, false), 'again')
  t.match(verdict(large, { ...mine, bytes: 200 }, false), { kind: 'refused', reason: /^too_large/ })
  t.match(verdict(older, { ...mine, bytes: 200 }, false), { kind: 'refused', reason: /^too_large/ })
  // A server that counts bytes differently from us
  t.match(verdict(large, mine, true), { kind: 'refused', reason: /^too_large/ })
  t.equal(verdict(topic, mine, false), 'again')
  t.match(verdict(topic, { ...mine, routingKey: 'secret' }, false), {
    kind: 'failed',
    reason: /^credentials/
  })
  t.match(verdict(exchange, mine, false), { kind: 'failed', reason: /^credentials/ })
  t.equal(verdict(other, mine, false), 'alone')
  t.match(verdict(other, mine, true), { kind: 'failed', reason: 'channel_closed: PRECONDITION_FAILED' })
  t.equal(verdict(undefined, mine, false), 'alone')
  t.match(verdict(undefined, mine, true), { kind: 'failed', reason: 'channel_closed' })
  for (const each of [topic, exchange])
    t.notMatch(JSON.stringify(verdict(each, mine, true)), 'clerk', 'users are not named')
})

t.test('why a connection broke, in stable words', async t => {
  const error = (code: string, text = ''): Error => Object.assign(new Error(text), { code })
  t.match(brokenBy(error('ACCESS_REFUSED', "Login was refused for user 'x'")).reason, /^credentials: [^']*$/)
  t.match(brokenBy(error('NOT_ALLOWED', 'vhost nowhere not found')).reason, /^target_missing/)
  t.match(brokenBy(error('NOT_ALLOWED', "access to vhost '/' refused")).reason, /^credentials/)
  t.equal(brokenBy(error('ECONNREFUSED')).reason, 'connection_refused')
  t.equal(brokenBy(error('ECONNRESET')).reason, 'connection_closed')
  t.equal(brokenBy(error('CONNECTION_TIMEOUT')).reason, 'connect_timeout')
  t.match(brokenBy(error('DEPTH_ZERO_SELF_SIGNED_CERT')), { alarm: 'TLS', reason: /^tls/ })
})
