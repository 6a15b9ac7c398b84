// The servers that this example needs besides Ackbox: a Dubbo provider, and Kafka. Both are Java, and Maven downloads them once.
import { execFile, spawnSync } from 'node:child_process'
import path from 'node:path'
import { promisify } from 'node:util'
import { Admin, Producer, stringSerializers } from '@platformatic/kafka'
import type { Stage } from '../runner/stage.ts'

const root = path.resolve(import.meta.dirname, '../../..')
const project = path.join(root, 'examples/java')

/** Throws a readable error if they cannot run here. */
export function insistOnJava(): void {
  const missing = ['java', 'mvn'].filter(
    program => spawnSync('sh', ['-c', `command -v ${program}`]).status !== 0
  )
  if (missing.length > 0)
    throw new Error(
      `this example needs a provider of Dubbo and Kafka, which need java (17 or newer) and mvn; not found here: ${missing.join(', ')}`
    )
}

/** Starts the Dubbo service `library`, on its own database. Returns its URL for BROKER_DUBBO. */
export async function library(stage: Stage, database: string): Promise<string> {
  const maven = [
    '-B',
    '-q',
    '-f',
    project,
    'compile',
    'dependency:copy-dependencies',
    '-DincludeScope=runtime'
  ]
  await promisify(execFile)('mvn', maven, { maxBuffer: 16 * 1_048_576 })
  const port = await stage.port()
  const { username, password, host, pathname } = new URL(database)
  await stage.command(
    'library',
    [
      'java',
      '-Xmx256m',
      '-cp',
      `${project}/target/classes:${project}/target/dependency/*`,
      'ackbox.example.library.Provider'
    ],
    {
      TRI_PORT: String(port),
      JDBC_URL: `jdbc:postgresql://${host}${pathname}?user=${username}&password=${password}`
    },
    /library is ready/
  )
  return `tri://127.0.0.1:${port}`
}

/** Starts Kafka with the topic `materials`. Returns its host and port. */
export async function kafka(stage: Stage): Promise<string> {
  const [port, control] = [await stage.port(), await stage.port()]
  await stage.command(
    'kafka',
    ['sh', path.join(root, 'test/interop/kafka/start.sh')],
    {
      KAFKA_PORT: String(port),
      KAFKA_CTRL_PORT: String(control),
      // In the folder of the stage, which is removed at the end; the downloads stay.
      DATA_DIR: 'kafka',
      INTEROP_CACHE: process.env['INTEROP_CACHE'] ?? path.join(root, '.interop')
    },
    /Kafka Server started/
  )
  const admin = new Admin({ clientId: 'open-platform', bootstrapBrokers: [`127.0.0.1:${port}`] })
  await admin.createTopics({ topics: ['materials'], partitions: 3, replicas: 1 })
  await admin.close()
  return `127.0.0.1:${port}`
}

/** Writes a record that Ackbox has not signed to each partition of `materials`. */
export async function forge(broker: string): Promise<void> {
  const producer = new Producer({
    clientId: 'stranger',
    bootstrapBrokers: [broker],
    serializers: stringSerializers
  })
  const value = JSON.stringify({ material: 0, title: 'forged' })
  await producer.send({
    messages: [0, 1, 2].map(partition => ({
      topic: 'materials',
      partition,
      value,
      headers: { 'webhook-id': `forged-${partition}` }
    }))
  })
  await producer.close()
}
