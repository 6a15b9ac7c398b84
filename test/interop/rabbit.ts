import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Connection, type SyncMessage } from 'rabbitmq-client'
import type { Test } from 'tap'
import { removeFolder } from '../../chaos/remove-folder.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { raw } from '../../src/transport/rabbitmq/receipts.ts'
import { without } from '../support/program.ts'
import type { Stored } from './conformance.ts'
import { cache, freePorts, server, type Server } from './server.ts'

export const skip = without('apt-get', 'dpkg')

export interface Rabbit {
  server: Server
  port: number
  url(more?: { port?: number; login?: string; path?: string }): string
  /** Runs `work` with its own connection, which is closed after it. */
  as<T>(work: (connection: Connection) => Promise<T>): Promise<T>
  /** Reads all messages of a queue without removing them. Waits for at least `count`. */
  stored(queue: string, count: number): Promise<(SyncMessage & Stored)[]>
  /** Runs rabbitmqctl, which takes seconds. */
  ctl(...args: string[]): Promise<void>
}

export async function rabbit(t: Test, extra = ''): Promise<Rabbit> {
  const [port = 0, dist = 0, epmd = 0] = await freePorts(3)
  const env = {
    RABBIT_PORT: String(port),
    RABBIT_DIST_PORT: String(dist),
    RABBIT_EPMD_PORT: String(epmd),
    RABBIT_EXTRA: extra
  }
  const script = 'test/interop/rabbitmq/start.sh'
  const dataDir = mkdtempSync(join(tmpdir(), 'ackbox-rabbitmq-'))
  const all = { ...process.env, INTEROP_CACHE: cache, DATA_DIR: dataDir, ...env }
  // Erlang's daemon (epmd) outlives the server. Teardowns run in reverse order.
  t.teardown(() => removeFolder(dataDir))
  t.teardown(async () => {
    // It refuses while the server is still registered
    const stop = () => spawnSync('sh', [script, 'epmd-stop'], { env: all, stdio: 'ignore' }).status
    for (let i = 0; i < 20 && stop() !== 0; i++) await sleep(50)
  })
  const running = await server(t, { name: 'rabbitmq', env, ready: /Server startup complete/, dataDir })

  const url: Rabbit['url'] = (more = {}) =>
    `amqp://${more.login ?? 'guest:guest'}@127.0.0.1:${more.port ?? port}/${more.path ?? ''}`

  async function as<T>(work: (connection: Connection) => Promise<T>): Promise<T> {
    const connection = new Connection({ url: url(), retryLow: 100 })
    connection.on('error', () => {})
    try {
      return await work(connection)
    } finally {
      await connection.close()
    }
  }

  return {
    server: running,
    port,
    url,
    as,

    stored: (queue, count) =>
      as(async connection => {
        const channel = raw(await connection.acquire())
        const found: (SyncMessage & Stored)[] = []
        for (const end = Date.now() + 300_000; found.length < count && Date.now() < end;) {
          const message = await channel.basicGet({ queue, noAck: false })
          if (message) found.push({ ...message, body: message.body, headers: message.headers ?? {} })
          else await sleep(50)
        }
        for (let more; (more = await channel.basicGet({ queue, noAck: false }));)
          found.push({ ...more, body: more.body, headers: more.headers ?? {} })
        // Unacknowledged messages return to their place in the queue
        await channel.close()
        return found
      }),

    async ctl(...args) {
      const child = spawn('sh', [script, 'ctl', ...args], { env: all, stdio: 'ignore' })
      const [code] = await once(child, 'exit')
      if (code !== 0) throw new Error(`rabbitmqctl ${args[0]} ended with ${code}`)
    }
  }
}

/** Queues for tests, durable and bound to the exchange. */
export const bound = (connection: Connection, exchange: string, key: string, queue: string): Promise<void> =>
  (async () => {
    await connection.exchangeDeclare({ exchange, type: 'topic', durable: true })
    await connection.queueDeclare({ queue, durable: true })
    await connection.queueBind({ queue, exchange, routingKey: key })
  })()

export function broker(url: string): Broker {
  const parsed = parseBroker('rabbitmq', url)
  if (typeof parsed === 'string') throw new Error(parsed)
  return parsed
}

/** A logger that records its messages, with their fields. */
export function said(): {
  lines: [string, object][]
  log: Record<'info' | 'warn', (fields: object, m: string) => void>
} {
  const lines: [string, object][] = []
  return {
    lines,
    log: {
      info: (fields, message) => lines.push([message, fields]),
      warn: (fields, message) => lines.push([message, fields])
    }
  }
}
