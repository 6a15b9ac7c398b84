// Brokers behind TLS, with certificates of an operator's own CA: NODE_EXTRA_CA_CERTS, and a URL scheme that ends in s.
import { createPrivateKey } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { connect, type AddressInfo } from 'node:net'
import { join, resolve } from 'node:path'
import { createServer } from 'node:tls'
import t, { type Test } from 'tap'
import { without } from '../support/program.ts'
import { call, folder, postUntilTaken, start } from '../support/service.ts'
import { until } from '../support/until.ts'
import { ca, good, key } from '../transport/certs.ts'
import { consumers } from './consumers.ts'
import { freePorts, server } from './server.ts'

t.setTimeout(2_400_000)

/** A TLS proxy in front of a broker without TLS. Returns its port. */
async function veil(t: Test, port: number): Promise<number> {
  const front = createServer({ key, cert: good }, near => {
    const far = connect(port, '127.0.0.1')
    near.on('error', () => far.destroy()).on('close', () => far.destroy())
    far.on('error', () => near.destroy()).on('close', () => near.destroy())
    near.pipe(far).pipe(near)
  })
  front.listen(0, '127.0.0.1')
  await once(front, 'listening')
  t.teardown(() => front.close())
  return (front.address() as AddressInfo).port
}

const veiled = async (t: Test, name: string): Promise<string> => {
  const plain = new URL((await consumers[name]!.start(t, () => {})).url)
  plain.host = `localhost:${await veil(t, Number(plain.port))}`
  return plain.href.replace(':', 's:')
}

const ways: Record<string, { needs: string[]; url: (t: Test) => Promise<string> }> = {
  rabbitmq: { needs: ['apt-get', 'dpkg'], url: t => veiled(t, 'rabbitmq') },
  'redis-stream': { needs: ['apt-get', 'dpkg'], url: t => veiled(t, 'redis-stream') },

  nats: {
    needs: ['apt-get', 'dpkg'],
    async url(t) {
      const [port = 0] = await freePorts(1)
      const dir = folder(t)
      writeFileSync(join(dir, 'cert.pem'), good)
      writeFileSync(join(dir, 'key.pem'), key)
      await server(t, {
        name: 'nats',
        env: {
          NATS_PORT: `${port}`,
          NATS_EXTRA: `tls { cert_file: "${dir}/cert.pem", key_file: "${dir}/key.pem" }`
        },
        ready: /Server is ready/
      })
      const { connect: dial } = await import('@nats-io/transport-node')
      const { jetstreamManager } = await import('@nats-io/jetstream')
      const connection = await dial({ servers: `localhost:${port}`, tls: { ca } })
      await (await jetstreamManager(connection)).streams.add({ name: 'story', subjects: ['story'] })
      await connection.close()
      return `natss://localhost:${port}`
    }
  },

  kafka: {
    needs: ['java', 'mvn'],
    async url(t) {
      const [port = 0, control = 0, secure = 0] = await freePorts(3)
      const dir = folder(t)
      const pkcs8 = createPrivateKey(key).export({ type: 'pkcs8', format: 'pem' })
      writeFileSync(join(dir, 'keystore.pem'), `${String(pkcs8)}${good}`)
      await server(t, {
        name: 'kafka',
        env: {
          KAFKA_PORT: `${port}`,
          KAFKA_CTRL_PORT: `${control}`,
          KAFKA_EXTRA: [
            `listeners=PLAINTEXT://127.0.0.1:${port},SECURE://127.0.0.1:${secure},CONTROLLER://127.0.0.1:${control}`,
            `advertised.listeners=PLAINTEXT://127.0.0.1:${port},SECURE://localhost:${secure}`,
            'listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT',
            'ssl.keystore.type=PEM',
            `ssl.keystore.location=${dir}/keystore.pem`
          ].join('\n')
        },
        ready: /Kafka Server started/
      })
      const { Admin } = await import('@platformatic/kafka')
      const admin = new Admin({ clientId: 'tls', bootstrapBrokers: [`127.0.0.1:${port}`] })
      await admin.createTopics({ topics: ['story'], partitions: 3, replicas: 1 })
      await admin.close()
      return `kafkas://localhost:${secure}`
    }
  }
}

for (const [name, { needs, url }] of Object.entries(ways))
  t.test(
    `${name} over TLS: delivered by a CA one trusts, and not without it`,
    { skip: without(...needs) },
    async t => {
      const broker = await url(t)
      const trusted = join(folder(t), 'ca.pem')
      writeFileSync(trusted, ca)
      const nowhere = {
        kafka: 'kafka',
        nats: 'nats',
        rabbitmq: 'amqp',
        rocketmq: 'rocketmq',
        'redis-stream': 'redis'
      }
      const service = (more: Record<string, string>) =>
        start(t, {
          DATA_DIR: folder(t),
          HANDLERS_DIR: resolve(import.meta.dirname, 'handlers'),
          BROKERS_JSON: JSON.stringify({
            ...Object.fromEntries(
              Object.entries(nowhere).map(([each, scheme]) => [each, `${scheme}://127.0.0.1:1`])
            ),
            [name]: broker
          }),
          ...more
        })
      interface Attempt {
        outcome: string
        reason?: string
      }
      // The first attempt may be too late: a broker that has just started is slow.
      const attempted = async (at: string, taskNo: string, is: (one: Attempt) => boolean) => {
        await postUntilTaken(() => at, { taskNo, messageCode: `by.${name}`, messageBody: { key: 'a' } })
        let attempts: Attempt[] = []
        await until('it was tried', async () => {
          const { body } = await call(`${at}/tasks/${taskNo}`)
          const [delivery] = (body?.['deliveries'] ?? []) as { attempts?: typeof attempts }[]
          attempts = delivery?.attempts ?? []
          return attempts.some(is)
        })
        return attempts
      }
      const knows = await service({ NODE_EXTRA_CA_CERTS: trusted })
      t.ok(await attempted(knows.url, 'trusted', one => one.outcome === 'delivered'))
      t.equal((await knows.kill('SIGTERM')).code, 0)
      const doubts = await service({})
      const doubted = await attempted(doubts.url, 'doubted', one => one.reason?.startsWith('tls') ?? false)
      t.notOk(doubted.some(one => one.outcome === 'delivered'))
    }
  )
