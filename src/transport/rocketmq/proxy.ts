import { createHmac } from 'node:crypto'
import { createRequire } from 'node:module'
import { hostname } from 'node:os'
import { isIP, isIPv6 } from 'node:net'
import grpc from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_grpc_pb.js'
import { at, allowedAddress, type Broker } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import { tlsName } from '../../runtime/tls.ts'
import { boundProtobuf } from './protobuf.ts'
import { notConnected } from './status.ts'
import { isError } from '../../runtime/text-of.ts'

// Only the protocol of rocketmq-client-nodejs is used, not its client. Its Producer resolves and connects by itself, past
// our guard; it cannot cancel a call; and its sessions continue for ever after a shutdown.

export type ProxyClient = InstanceType<typeof grpc.MessagingServiceClient>
type SendCall = Parameters<ProxyClient['sendMessage']>
type Metadata = Exclude<SendCall[1], (...given: never[]) => unknown>

interface Grpc {
  credentials: Record<
    'createSsl' | 'createInsecure',
    () => ConstructorParameters<typeof grpc.MessagingServiceClient>[1]
  >
  Metadata: new () => Metadata
  logVerbosity: { NONE: number }
  setLogVerbosity(verbosity: number): void
}

// The same copy that the generated client uses to check its credentials.
const { credentials, Metadata, logVerbosity, setLogVerbosity } = createRequire(
  import.meta.resolve('rocketmq-client-nodejs')
)('@grpc/grpc-js') as Grpc

// gRPC would write data of a server, and its own errors, to stderr.
setLogVerbosity(logVerbosity.NONE)
boundProtobuf()

/** Bytes of a route of 3,000 queues. Reading a larger answer would block other work for too long. */
const answerBytes = 524_288
const sessionMb = 16

export interface ProxyAddress {
  host: string
  port: number
}

/** A connection to one proxy, shared by all its calls. */
export interface Proxy {
  client: ProxyClient
  /** The address that was judged, `ip:port`. */
  address: string
  /** The time of its last answer, by `performance.now()`. */
  heardAt: number
  madeAt: number
  calls: number
  /** Accepts no new calls, and closes after the last one. */
  left: boolean
}

/** Makes a connection that opens at its first call, and only to the address that the guard has judged. */
async function proxyAt(guard: Guard, broker: Broker, place: ProxyAddress, most: number): Promise<Proxy> {
  const ip = await allowedAddress(guard, place)
  const address = at({ host: ip, port: place.port })
  const client = new grpc.MessagingServiceClient(
    `${isIPv6(ip) ? 'ipv6' : 'ipv4'}:${address}`,
    broker.tls ? credentials.createSsl() : credentials.createInsecure(),
    {
      'grpc.default_authority': at(place),
      ...(isIP(place.host) ? {} : { 'grpc.ssl_target_name_override': tlsName(place.host) }),
      // An HTTP proxy from the environment would bypass the guard.
      'grpc.enable_http_proxy': 0,
      'grpc.enable_retries': 0,
      'grpc.enable_channelz': 0,
      'grpc.max_receive_message_length': most,
      'grpc-node.max_session_memory': sessionMb,
      // Shared subchannels would stay after close, and keep the backoff of their last failures.
      'grpc.use_local_subchannel_pool': 1
    }
  )
  const now = performance.now()
  return { client, address, heardAt: now, madeAt: now, calls: 0, left: false }
}

const connecting = 1
const patienceMs = 300_000

/**
 * gRPC does not close a connection whose handshake hangs, even if its client is closed: a new connection for each failed send
 * would pile up. After a while a new one is opened anyway, because the machine may be gone for good.
 */
const isConnecting = ({ client, madeAt }: Proxy): boolean =>
  client.getChannel().getConnectivityState(false) === connecting && performance.now() - madeAt < patienceMs

function leave(proxy: Proxy): void {
  proxy.left = true
  if (proxy.calls === 0) proxy.client.close()
}

/** The connections to the proxies of one RocketMQ, each made at its first use. */
export interface Proxies {
  to(place: ProxyAddress): Promise<Proxy>
  /** The next call connects anew, and resolves the name again. */
  forget(place: ProxyAddress, proxy: Proxy): void
  /** Leaves all others. */
  keepOnly(addresses: { has(address: string): boolean }): void
  close(): void
}

/** An answer may have at most `most` bytes. */
export function proxiesOf(guard: Guard, broker: Broker, most = answerBytes): Proxies {
  const proxies = new Map<string, Promise<Proxy>>()
  let isClosed = false

  return {
    to(place) {
      const known = proxies.get(at(place))
      if (known) return known
      const made = proxyAt(guard, broker, place, most).then(proxy => {
        if (isClosed) leave(proxy)
        return proxy
      })
      proxies.set(at(place), made)
      made.catch(() => proxies.delete(at(place)))
      return made
    },
    forget(place, proxy) {
      if (proxy.left || isConnecting(proxy)) return
      proxies.delete(at(place))
      leave(proxy)
    },
    keepOnly(addresses) {
      for (const [address, proxy] of proxies) {
        if (addresses.has(address)) continue
        proxies.delete(address)
        proxy.then(leave, () => {})
      }
    },
    close() {
      isClosed = true
      for (const proxy of proxies.values()) proxy.then(leave, () => {})
      proxies.clear()
    }
  }
}

type Done<Answer> = (error: Error | null, answer: Answer) => void

/** One call. `letGo` gets a function that cancels it. */
export function call<Answer>(
  proxy: Proxy,
  start: (client: ProxyClient, done: Done<Answer>) => { cancel(): void },
  letGo: (cancel: () => void) => void = () => {}
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // Another send may have closed the proxy since the lookup: a closed client throws.
    if (proxy.left) return reject(notConnected())
    proxy.calls++
    const ongoing = start(proxy.client, (error, answer) => {
      proxy.calls--
      if (proxy.left && proxy.calls === 0) proxy.client.close()
      if (error) return reject(error)
      proxy.heardAt = performance.now()
      resolve(answer)
    })
    letGo(() => ongoing.cancel())
  })
}

interface Answers<Answer> {
  on(event: 'data', heard: (answer: Answer) => void): unknown
  on(event: 'error', heard: (error: Error) => void): unknown
  on(event: 'end', heard: () => void): unknown
  cancel(): void
}

/**
 * A call with more than one answer: `ended` resolves when the server ends it, and rejects with the error of the call or of
 * `onAnswer`.
 */
export function listen<Answer>(
  proxy: Proxy,
  start: (client: ProxyClient) => Answers<Answer>,
  onAnswer: (answer: Answer) => void
): { ended: Promise<void>; cancel(): void } {
  if (proxy.left) return { ended: Promise.reject(notConnected()), cancel() {} }
  proxy.calls++
  const answers = start(proxy.client)
  let isBroken = false
  const ended = new Promise<void>((resolve, reject) => {
    // The listeners stay, also after a cancel: an 'error' without a listener ends the process.
    answers.on('error', reject)
    answers.on('end', resolve)
    answers.on('data', answer => {
      // Ignores answers that follow the one with the error.
      if (isBroken) return
      proxy.heardAt = performance.now()
      try {
        onAnswer(answer)
      } catch (error) {
        isBroken = true
        reject(isError(error) ? error : new Error('not an error'))
        answers.cancel()
      }
    })
  }).finally(() => {
    proxy.calls--
    if (proxy.left && proxy.calls === 0) proxy.client.close()
  })
  ended.catch(() => {})
  return { ended, cancel: () => answers.cancel() }
}

export const clientId = `${hostname()}@${process.pid}@ackbox`

/** The headers of a call, https://github.com/apache/rocketmq-clients/blob/master/docs/transport.md */
export function metadata(broker: Broker, id = clientId): Metadata {
  const headers = new Metadata()
  const now = new Date().toISOString().replaceAll(/[-:]|\.\d+/g, '')
  headers.set('x-mq-protocol', 'v2')
  headers.set('x-mq-client-id', id)
  headers.set('x-mq-date-time', now)
  // Servers have no language name for Node, and refuse unknown names.
  headers.set('x-mq-language', 'HTTP')
  headers.set('x-mq-client-version', '5.0.0')
  if (broker.path) headers.set('x-mq-namespace', broker.path)
  if (broker.username === undefined) return headers
  const signature = createHmac('sha1', broker.password ?? '')
    .update(now)
    .digest('hex')
    .toUpperCase()
  headers.set(
    'authorization',
    `MQv2-HMAC-SHA1 Credential=${broker.username}, SignedHeaders=x-mq-date-time, Signature=${signature}`
  )
  return headers
}
