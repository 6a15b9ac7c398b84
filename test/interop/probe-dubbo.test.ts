// A Java provider handled a task, but its answer came too late: Ackbox probes it before it sends the task again.
import t from 'tap'
import type { LoadedDownstream } from '../../src/handler/loaded.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { dubbo2Transport } from '../../src/transport/dubbo/classic.ts'
import { dubboTransport } from '../../src/transport/dubbo/triple.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import type { Transport } from '../../src/transport/types.ts'
import { only } from '../support/only.ts'
import { without } from '../support/program.ts'
import { setup } from '../support/setup.ts'
import { freePorts, server } from './server.ts'

const skip = without('java', 'mvn')
const service = 'ackbox.interop.OrderNotifyService'

t.test('a Java provider', { skip }, async t => {
  const [tri = 0, classic = 0] = await freePorts(2)
  await server(t, {
    name: 'dubbo',
    env: { TRI_PORT: `${tri}`, DUBBO_PORT: `${classic}` },
    ready: /READY tri=/
  })
  const brokers = new Map<string, Broker>()
  for (const [name, url] of [
    ['dubbo', `tri://127.0.0.1:${tri}`],
    ['dubbo2', `dubbo://127.0.0.1:${classic}`]
  ] as const) {
    const broker = parseBroker(name, url)
    if (typeof broker === 'string') throw new Error(broker)
    brokers.set(name, broker)
  }
  const deps = {
    guard: guard({ allow: undefined, embedded: true, deny: [] }),
    brokers,
    log: { info: () => {}, warn: () => {} }
  }
  const ways: { transport: Transport; call(method: string, types: string[], args: unknown[]): object }[] = [
    { transport: dubboTransport(deps), call: (method, _, args) => ({ service, method, args }) },
    {
      transport: dubbo2Transport(deps),
      call: (method, types, args) => ({ service, method, types, args })
    }
  ]
  for (const { transport, call } of ways) {
    t.teardown(() => transport.close())
    await t.test(`over ${transport.name}`, async t => {
      // The answer comes after the deadline for the first attempt, and at once for any other.
      let ms = 60_000
      const request = ({ task }: { task: { taskNo: string } }) =>
        call('notifySlowly', ['ackbox.interop.OrderNotice', 'long'], [{ orderId: task.taskNo }, ms])
      const { post, quiet, later, dispatch, delivery } = await setup(t, {
        transport,
        downstream: {
          transport: transport.name,
          request,
          probe: {
            request: ({ task }: { task: { taskNo: string } }) =>
              call('handled', ['java.lang.String'], [task.taskNo]),
            handled: ({ json }) => json,
            required: true
          },
          // Half of it is left for the probe: enough for a provider on a busy machine.
          limit: { concurrency: 5, timeoutMs: 20_000 }
        } as Partial<LoadedDownstream>
      })
      const taskNo = await post()
      await quiet()
      t.match(await delivery(taskNo), { status: 'SENDING', attempts: only({ reason: /^timeout/ }) })
      ms = 0
      await later('1 hour')
      await dispatch()
      t.match(await delivery(taskNo), {
        status: 'HANDLED',
        handledBy: 'probe',
        attempt: 2,
        attempts: only({}, { outcome: 'probed', answer: 'true' })
      })
      const times = await transport.send(call('timesHandled', ['java.lang.String'], [taskNo]), {
        downstream: 'warehouse',
        timeoutMs: 60_000,
        signal: new AbortController().signal,
        headers: () => ({})
      })
      t.equal(Buffer.from(times.answer ?? []).toString(), '1', 'it got the task once')
    })
  }
})
