// The conformance tests of transports with answers, against a Java provider whose behaviour the test sets for each call.
import { once } from 'node:events'
import { createServer as createHttpServer } from 'node:http'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { json } from 'node:stream/consumers'
import { setTimeout as sleep } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { limiter } from '../../src/queue/limiter.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubboTransport } from '../../src/transport/dubbo/triple.ts'
import { dubbo2Transport } from '../../src/transport/dubbo/classic.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import type { Accepted, Transport } from '../../src/transport/types.ts'
import { conformance, type Mood, type Seen } from '../transport/conformance.ts'
import { without } from '../support/program.ts'
import { until } from '../support/until.ts'
import { freePorts, server } from './server.ts'

const skip = without('java', 'mvn')

/** The pause of a classic-protocol connection after a failure. */
const restMs = 550

/** A proxy in front of the provider that shows the open connections, which Java hides. */
async function door(t: Test, port: number) {
  const open = new Set<Socket>()
  const listener = createServer(near => {
    if (!listener.listening) return void near.destroy() // it was accepted during the close
    const far = connect(port, '127.0.0.1')
    open.add(near)
    for (const [socket, other] of [
      [near, far],
      [far, near]
    ] as const) {
      socket.on('error', () => {}).on('close', () => other.destroy())
      socket.pipe(other)
    }
    near.on('close', () => open.delete(near))
  })
  async function close(): Promise<void> {
    for (const socket of open) socket.destroy()
    if (listener.listening) await new Promise(done => listener.close(done))
  }
  async function start(at: number): Promise<number> {
    listener.listen(at, '127.0.0.1')
    await once(listener, 'listening')
    return (listener.address() as AddressInfo).port
  }
  t.teardown(close)
  return { open, close, start, port: await start(0) }
}

async function provider(t: Test) {
  let mood: Mood = 'take'
  let seen: Seen[] = []
  let hung = (): void => {}
  const script = createHttpServer((request, response) => {
    json(request).then(
      told => {
        const { body, headers } = told as { body: string; headers: Record<string, string> }
        seen.push({ headers, body: Buffer.from(body, headers['x-bytes'] === undefined ? 'utf8' : 'latin1') })
        response.end(mood)
        if (mood === 'hang') hung()
      },
      () => {} // the provider was killed during this request
    )
  }).listen(0, '127.0.0.1')
  await once(script, 'listening')
  t.teardown(() => {
    script.closeAllConnections()
    script.close()
  })

  const [tri = 0, dubbo = 0] = await freePorts(2)
  const running = await server(t, {
    name: 'dubbo',
    env: {
      TRI_PORT: `${tri}`,
      DUBBO_PORT: `${dubbo}`,
      SCRIPT_URL: `http://127.0.0.1:${(script.address() as AddressInfo).port}`
    },
    ready: /READY tri=/
  })
  return {
    ports: { dubbo: tri, dubbo2: dubbo },
    stop: () => running.kill(),
    start: () => running.start(),
    anew() {
      mood = 'take'
      const mine: Seen[] = (seen = [])
      const hanging = new Promise<void>(resolve => (hung = resolve))
      return { seen: mine, hanging, mood: (next: Mood) => void (mood = next) }
    }
  }
}

function transportTo(t: Test, name: 'dubbo' | 'dubbo2', port: number): Transport<unknown> {
  const broker = parseBroker(name, `${name === 'dubbo' ? 'tri' : 'dubbo'}://127.0.0.1:${port}`)
  if (typeof broker === 'string') throw new Error(broker)
  const make = name === 'dubbo' ? dubboTransport : dubbo2Transport
  const transport = make({
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers: new Map<string, Broker>([[name, broker]]),
    log: { info() {}, warn() {} }
  })
  t.teardown(() => transport.close())
  return transport
}

/** Limits the concurrency, as a downstream's limit does: further sends wait. */
function limited(transport: Transport<unknown>, concurrency: number): Transport<unknown> {
  const open = limiter({ concurrency, share: () => 1 })
  return {
    ...transport,
    async send(request, context, accepted) {
      if (!open.tryTake()) await open.take(context.signal)
      try {
        return await transport.send(request, context, accepted)
      } finally {
        open.free()
      }
    }
  }
}

// JSON has no bytes: they are converted to text.
const textOf = (body: string | Uint8Array): string =>
  typeof body === 'string' ? body : Buffer.from(body).toString('latin1')

const accepted: Accepted = ({ json }) => {
  const { code } = json as { code: number }
  return code === 9 ? 'refused' : code === 0
}

for (const name of ['dubbo', 'dubbo2'] as const)
  t.test(`over ${name}`, { skip }, async t => {
    const java = await provider(t)

    conformance(t, async t => {
      const { seen, hanging, mood } = java.anew()
      const way = await door(t, java.ports[name])
      return {
        // Triple has a connection for each call, and the provider has 200 threads; the classic protocol has one connection for all calls.
        transport:
          name === 'dubbo' ? limited(transportTo(t, name, way.port), 200) : transportTo(t, name, way.port),
        seen,
        accepted,
        request: ({ body, headers = {} }) => ({
          service: 'ackbox.interop.ScriptedService',
          method: 'call',
          args: [textOf(body)],
          ...(name === 'dubbo' ? { parameters: 1 } : { types: ['java.lang.String'] }),
          attachments: { ...headers, ...(typeof body !== 'string' && { 'x-bytes': 'latin1' }) }
        }),
        signed: body => JSON.stringify([textOf(body)]),
        echoed: answer => JSON.parse(answer) as string,
        mood,
        stop: async () => {
          await java.stop()
          await way.close()
        },
        start: async () => {
          await java.start()
          await way.start(way.port)
          if (name === 'dubbo2') await sleep(restMs)
        },
        hanging: () => hanging,
        letGo: async () => {
          // The connection in use stays; the classic protocol has only one.
          await until(
            () => `there is one connection, and not ${way.open.size}`,
            () => way.open.size <= 1
          )
        }
      }
    })
  })
