// The part of a RocketMQ proxy that a consumer of one topic needs, with the faults that a test sets.
import { createRequire } from 'node:module'
import definition from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb.js'
import grpc from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_grpc_pb.js'
import service from 'rocketmq-client-nodejs/proto/apache/rocketmq/v2/service_pb.js'
import type { Test } from 'tap'

const { Code, Encoding, Permission } = definition

interface GrpcServer {
  addService(service: unknown, methods: object): void
  bindAsync(at: string, credentials: unknown, done: (error: Error | null, port: number) => void): void
  forceShutdown(): void
}
const { Server, ServerCredentials } = createRequire(import.meta.resolve('rocketmq-client-nodejs'))(
  '@grpc/grpc-js'
) as {
  Server: new (options: object) => GrpcServer
  ServerCredentials: { createInsecure(): unknown }
}

interface Line<Said> {
  write(said: Said): boolean
  end(): void
  on(event: string, heard: (said: never) => void): void
  request: InstanceType<typeof service.ReceiveMessageRequest>
}
type Command = InstanceType<typeof service.TelemetryCommand>
type Response = InstanceType<typeof service.ReceiveMessageResponse>
type Message = InstanceType<typeof definition.Message>
type Done = (error: null, answer: object) => void

export interface ScriptedProxy {
  port: number
  topicCode: number
  /** Answers the settings of a consumer. */
  greet(line: Line<Command>): void
  /** Messages in the queue. Each is delivered once. */
  bodies: (string | Uint8Array)[]
  /** The messages are delivered again and again. */
  isEndless: boolean
  /** How long a request stays open if the queue is empty. */
  emptyMs: number
  /** Changes each message before its delivery. */
  dress(message: Message): void
  /** Delivers more messages than the consumer requested. */
  isGenerous: boolean
  encoding: number
  asked: number[]
  acknowledged: string[]
  sessions: number
  stop(): void
  start(): Promise<void>
}

const status = (code: number): InstanceType<typeof definition.Status> => new definition.Status().setCode(code)

/** Like a real proxy, it refuses a consumer that has not sent its settings. */
export async function proxyOf(t: Test): Promise<ScriptedProxy> {
  let running: GrpcServer | undefined
  let isKnown = false
  const fake: ScriptedProxy = {
    port: 0,
    topicCode: Code.OK,
    greet: line => void line.write(new service.TelemetryCommand().setSettings(new definition.Settings())),
    bodies: [],
    isEndless: false,
    emptyMs: 50,
    dress: () => {},
    isGenerous: false,
    encoding: Encoding.IDENTITY,
    asked: [],
    acknowledged: [],
    sessions: 0,
    stop: () => running?.forceShutdown(),
    start: () =>
      new Promise((resolve, reject) => {
        running = new Server({ 'grpc.max_send_message_length': -1 })
        running.addService(grpc.MessagingServiceService, {
          queryRoute,
          telemetry,
          receiveMessage,
          ackMessage,
          heartbeat: (_: unknown, done: Done) =>
            done(null, new service.HeartbeatResponse().setStatus(status(Code.OK)))
        })
        running.bindAsync(`127.0.0.1:${fake.port}`, ServerCredentials.createInsecure(), (error, port) => {
          if (error) return reject(error)
          fake.port = port
          resolve()
        })
      })
  }

  function queryRoute(_: unknown, done: Done): void {
    const address = new definition.Address().setHost('127.0.0.1').setPort(fake.port)
    const endpoints = new definition.Endpoints().setAddressesList([address])
    const queue = new definition.MessageQueue()
      .setTopic(new definition.Resource().setName('ackbox-receipts'))
      .setPermission(Permission.READ_WRITE)
      .setBroker(new definition.Broker().setName('b').setEndpoints(endpoints))
    done(
      null,
      new service.QueryRouteResponse().setStatus(status(fake.topicCode)).setMessageQueuesList([queue])
    )
  }

  function telemetry(line: Line<Command>): void {
    fake.sessions++
    line.on('error', () => {})
    line.on('end', () => {
      isKnown = false
      line.end()
    })
    line.on('data', (command: Command) => {
      isKnown = command.getSettings()?.getSubscription()?.getGroup()?.getName() === 'ackbox'
      fake.greet(line)
    })
  }

  function receiveMessage(line: Line<Response>): void {
    line.on('error', () => {})
    const say = (): Response => new service.ReceiveMessageResponse()
    const most = line.request.getBatchSize()
    fake.asked.push(most)
    if (!isKnown) {
      line.write(say().setStatus(status(Code.UNRECOGNIZED_CLIENT_TYPE)))
      return line.end()
    }
    const given = fake.bodies.slice(0, fake.isGenerous ? fake.bodies.length : most)
    if (!fake.isEndless) fake.bodies.splice(0, given.length)
    if (given.length === 0) {
      setTimeout(() => {
        line.write(say().setStatus(status(Code.MESSAGE_NOT_FOUND)))
        line.end()
      }, fake.emptyMs)
      return
    }
    line.write(say().setStatus(status(Code.OK)))
    for (const body of given) {
      const system = new definition.SystemProperties()
        .setMessageId('01A')
        .setReceiptHandle(`handle of ${Buffer.from(body).subarray(0, 30).toString()}`)
        .setBodyEncoding(fake.encoding)
      const message = new definition.Message().setSystemProperties(system).setBody(Buffer.from(body))
      message.getUserPropertiesMap().set('Ackbox-Callback-Token', 'v1.abc')
      fake.dress(message)
      line.write(say().setMessage(message))
    }
    line.end()
  }

  function ackMessage(
    { request }: { request: InstanceType<typeof service.AckMessageRequest> },
    done: Done
  ): void {
    fake.acknowledged.push(...request.getEntriesList().map(each => each.getReceiptHandle()))
    done(null, new service.AckMessageResponse().setStatus(status(Code.OK)))
  }

  await fake.start()
  t.teardown(() => fake.stop())
  return fake
}
