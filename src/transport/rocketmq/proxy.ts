import { createHmac } from 'node:crypto'
import { createRequire } from 'node:module'
import { hostname } from 'node:os'
import { isIP, isIPv6 } from 'node:net'
import grpc from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_grpc_pb.js'
import { at, reach, type Broker } from '../broker.ts'
import type { Guard } from '../egress/guard.ts'
import { boundProtobuf } from './protobuf.ts'
import { notConnected } from './status.ts'

// The protocol comes from rocketmq-client-nodejs, and of its client nothing but that: its Producer resolves and connects by
// itself, so no guard could hold; it cannot let go of a call; and after a shutdown its sessions go on for ever.

export type Client = InstanceType<typeof grpc.MessagingServiceClient>
type SendCall = Parameters<Client['sendMessage']>
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

// The very copy that the generated client checks its credentials against.
const { credentials, Metadata, logVerbosity, setLogVerbosity } = createRequire(
  import.meta.resolve('rocketmq-client-nodejs')
)('@grpc/grpc-js') as Grpc

// It writes to stderr what a server sent and what it cannot take.
setLogVerbosity(logVerbosity.NONE)
boundProtobuf()

/** A route of 3,000 queues. What is larger takes longer to read than others can wait. */
const answerBytes = 524_288
const sessionMb = 16

export interface Place {
  host: string
  port: number
}

/** A connection to one proxy, shared by all that goes there. */
export interface Proxy {
  client: Client
  /** The address that was judged, `ip:port`. */
  address: string
  /** When it last answered anything, by `performance.now()`. */
  heardAt: number
  madeAt: number
  calls: number
  /** Accepts no new calls, and closes after the last one. */
  left: boolean
}

/** Makes a connection that opens at its first call, to the address that the guard has judged and to no other. */
async function proxyAt(guard: Guard, broker: Broker, place: Place, most: number): Promise<Proxy> {
  const ip = await reach(guard, place)
  const address = at({ host: ip, port: place.port })
  const client = new grpc.MessagingServiceClient(
    `${isIPv6(ip) ? 'ipv6' : 'ipv4'}:${address}`,
    broker.tls ? credentials.createSsl() : credentials.createInsecure(),
    {
      'grpc.default_authority': at(place),
      ...(isIP(place.host) ? {} : { 'grpc.ssl_target_name_override': place.host }),
      // An HTTP proxy from the environment would bypass the guard.
      'grpc.enable_http_proxy': 0,
      'grpc.enable_retries': 0,
      'grpc.enable_channelz': 0,
      'grpc.max_receive_message_length': most,
      'grpc-node.max_session_memory': sessionMb,
      // Shared ones would be kept after close, and wait for as long as their last failures taught them.
      'grpc.use_local_subchannel_pool': 1
    }
  )
  const now = performance.now()
  return { client, address, heardAt: now, madeAt: now, calls: 0, left: false }
}

const connecting = 1
const patienceMs = 300_000

/**
 * gRPC does not close a connection whose handshake hangs, not even with its client: a new one for each send that was in
 * vain would pile up. After a while another is tried all the same: this machine may be gone for good.
 */
const isConnecting = ({ client, madeAt }: Proxy): boolean =>
  client.getChannel().getConnectivityState(false) === connecting && performance.now() - madeAt < patienceMs

function leave(proxy: Proxy): void {
  proxy.left = true
  if (proxy.calls === 0) proxy.client.close()
}

/** The connections to the proxies of one RocketMQ, each made when it is first asked for. */
export interface Proxies {
  to(place: Place): Promise<Proxy>
  /** The next call connects anew, to what the name then stands for. */
  forget(place: Place, proxy: Proxy): void
  close(): void
}

/** An answer may have as many bytes as `most`. */
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
    close() {
      isClosed = true
      for (const proxy of proxies.values()) proxy.then(leave, () => {})
      proxies.clear()
    }
  }
}

type Done<Answer> = (error: Error | null, answer: Answer) => void

/** One call. `letGo` is given what ends it early. */
export function call<Answer>(
  proxy: Proxy,
  start: (client: Client, done: Done<Answer>) => { cancel(): void },
  letGo: (cancel: () => void) => void = () => {}
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    // Left by another send between its being found and now: a closed client throws.
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
 * A call that is answered more than once: `ended` resolves when the other end ends it, and rejects with what broke it, or with what
 * `onAnswer` threw.
 */
export function listen<Answer>(
  proxy: Proxy,
  start: (client: Client) => Answers<Answer>,
  onAnswer: (answer: Answer) => void
): { ended: Promise<void>; cancel(): void } {
  if (proxy.left) return { ended: Promise.reject(notConnected()), cancel() {} }
  proxy.calls++
  const answers = start(proxy.client)
  let isBroken = false
  const ended = new Promise<void>((resolve, reject) => {
    // Heard to its end, also after it was cancelled: an 'error' that nobody listens to ends the process.
    answers.on('error', reject)
    answers.on('end', resolve)
    answers.on('data', answer => {
      // What came with the answer that broke it
      if (isBroken) return
      proxy.heardAt = performance.now()
      try {
        onAnswer(answer)
      } catch (error) {
        isBroken = true
        reject(error instanceof Error ? error : new Error('not an error'))
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
  // Servers know no name for Node here: what they cannot read they refuse.
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
