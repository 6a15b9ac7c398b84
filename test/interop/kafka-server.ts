import { Admin, Consumer, MessagesStreamModes, Producer } from '@platformatic/kafka'
import type { Test } from 'tap'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import type { Stored } from './conformance.ts'
import { freePorts, server, type Server } from './server.ts'

export const skip = without('java', 'mvn')

export interface Kafka {
  server: Server
  /** The port without a login. */
  open: number
  /** The port that requires the login `ackbox:right-one`. */
  login: number
  create(topic: string, partitions?: number): Promise<void>
  stored(topic: string, count: number): Promise<(Stored & { partition: number; key: string })[]>
  publish(topic: string, messages: { value: string; headers?: Record<string, string> }[]): Promise<void>
}

export function broker(url: string): Broker {
  const parsed = parseBroker('kafka', url)
  if (typeof parsed === 'string') throw new Error(parsed)
  return parsed
}

export function said() {
  const lines: [message: string, fields: object][] = []
  const say = (fields: object, message: string): void => void lines.push([message, fields])
  return { lines, log: { info: say, warn: say } }
}

export async function kafka(t: Test, advertised = '127.0.0.1'): Promise<Kafka> {
  const [open, login, control] = (await freePorts(3)) as [number, number, number]
  const process = await server(t, {
    name: 'kafka',
    ready: /Kafka Server started/,
    env: {
      KAFKA_PORT: String(open),
      KAFKA_CTRL_PORT: String(control),
      KAFKA_EXTRA: [
        `listeners=PLAINTEXT://127.0.0.1:${open},SASL_PLAINTEXT://127.0.0.1:${login},CONTROLLER://127.0.0.1:${control}`,
        `advertised.listeners=PLAINTEXT://127.0.0.1:${open},SASL_PLAINTEXT://${advertised}:${login}`,
        'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT',
        'sasl.enabled.mechanisms=PLAIN',
        'listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_ackbox="right-one";'
      ].join('\n')
    }
  })
  const own = { clientId: 'test', bootstrapBrokers: [`127.0.0.1:${open}`] }

  return {
    server: process,
    open,
    login,
    async create(topic, partitions = 1) {
      const admin = new Admin(own)
      await admin.createTopics({ topics: [topic], partitions, replicas: 1 })
      await admin.close()
    },
    async stored(topic, count) {
      const consumer = new Consumer({ ...own, groupId: `test-${Math.random()}` })
      const found: (Stored & { partition: number; key: string })[] = []
      try {
        let end = 0
        await until(`${count} are stored`, async () => {
          const offsets = await consumer.listOffsets({ topics: [topic] })
          end = (offsets.get(topic) ?? []).reduce((sum, each) => sum + Number(each), 0)
          return end >= count
        })
        if (end === 0) return found
        const stream = await consumer.consume({
          topics: [topic],
          mode: MessagesStreamModes.EARLIEST,
          autocommit: false,
          maxWaitTime: 50
        })
        for await (const { value, headers, partition, key } of stream) {
          const texts = [...headers].map(each => each.map(String) as [string, string])
          found.push({ body: value, headers: Object.fromEntries(texts), partition, key: String(key) })
          if (found.length >= end) break
        }
        return found
      } finally {
        await new Promise<void>(resolve => consumer.close(true, () => resolve()))
      }
    },
    async publish(topic, messages) {
      const producer = new Producer(own)
      await producer.send({
        acks: -1,
        messages: messages.map(({ value, headers = {} }) => ({
          topic,
          value: Buffer.from(value),
          headers: new Map(Object.entries(headers).map(([k, v]) => [Buffer.from(k), Buffer.from(v)]))
        }))
      })
      await producer.close()
    }
  }
}
