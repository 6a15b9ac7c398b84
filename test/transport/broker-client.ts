// A process that only sends to one broker, or reads receipts from it, so that its parent sees a crash.
// Commands by IPC: { send: timeoutMs }, or { begin: true | false } to start or stop reading. It reports results and measurements.
import { readReceipts } from '../../src/transport/kafka/receipts.ts'
import { guard } from '../../src/transport/egress/guard.ts'
import { parseBroker, type Broker } from '../../src/transport/broker.ts'
import { transports, type TransportName } from '../../src/transport/registry.ts'
import { sendContext } from './send-context.ts'

const [what = '', url = ''] = process.argv.slice(2)
const broker = parseBroker(what === 'receipts' ? 'kafka' : what, url) as Broker
const open = guard({ allow: undefined, embedded: true, deny: [] })

let longestBlockMs = 0
let peakRss = 0
let at = performance.now()
let cpu = process.cpuUsage()
setInterval(() => {
  const now = performance.now()
  const used = process.cpuUsage(cpu)
  // On a busy machine a timer is late without our fault, so the used CPU time is the limit.
  longestBlockMs = Math.max(longestBlockMs, Math.min(now - at - 10, (used.user + used.system) / 1_000))
  at = now
  cpu = process.cpuUsage()
  peakRss = Math.max(peakRss, process.memoryUsage.rss())
}, 10)

const measured = () => ({
  longestBlockMs: Math.round(longestBlockMs),
  peakMb: Math.round(peakRss / 1_048_576)
})

if (what === 'receipts') {
  let stop = new AbortController()
  const say = (fields: object, said: string): void => {
    if (said === 'receipts.unavailable') process.send?.({ said, ...fields })
  }
  const read = async (): Promise<void> => {
    stop = new AbortController()
    await readReceipts(
      { broker, guard: open, log: { info: say, warn: say } },
      async ({ body }) => {
        process.send?.({ receipt: Buffer.from(body).toString() })
        return 'done'
      },
      stop.signal
    )
    process.send?.({ stopped: true, ...measured() })
  }
  process.on('message', ({ begin }: { begin: boolean }) => {
    if (begin) void read()
    else stop.abort()
  })
  process.send?.({ ready: true })
} else {
  const name = what as TransportName
  const log = { info: () => {}, warn: () => {} }
  const transport = (await transports({ guard: open, brokers: new Map([[name, broker]]), log }, [name]))[
    name
  ]!
  process.on('message', ({ send, topic = 'orders' }: { send: number; topic?: string }) => {
    void transport
      .send({ topic }, sendContext({ timeoutMs: send, raw: '{"n":1}' }))
      .then(outcome => process.send?.({ outcome, ...measured() }))
  })
  process.send?.({ ready: true })
}
