// The ways of use that are measured, each with a fair baseline.
import { fileURLToPath } from 'node:url'
import type { Ground } from './ground.ts'
import type { Way } from './measure.ts'
import { runAckbox, startAckbox, startRelay, type Running } from './variants.ts'

/** The service that is measured, and how tasks are posted to it. */
export interface Setup {
  name: string
  way: Way & { inFlight?: number }
  start: (ground: Ground, redisUrl: string | undefined) => Promise<Running>
}

export interface Shape {
  name: string
  what: string
  subject: Setup
  baseline: Setup
}

const database = 'bench_shapes'
const downstreams = 4
const relay: Setup = {
  name: 'bare relay',
  way: {},
  start: ({ sinkUrl }) => startRelay({ BENCH_SINK: sinkUrl })
}
const relayOfReceipts: Setup = {
  name: 'bare relay with the same receipts',
  way: { receipts: true },
  start: ({ sinkUrl }) => startRelay({ BENCH_SINK: sinkUrl, BENCH_RECEIPTS: 'on' })
}
const alone = ackbox('one process', {})

export const shapes: Shape[] = [
  {
    name: 'receipts',
    what: 'every downstream owes a receipt; from the first POST to the last receipt that was taken',
    subject: ackbox('ackbox', { receipts: true }, 'receipts'),
    baseline: relayOfReceipts
  },
  {
    name: 'batch',
    what: '100 tasks a POST, 8 in flight',
    subject: ackbox('ackbox', { batch: 100, inFlight: 8 }),
    baseline: relay
  },
  {
    name: 'fanout',
    what: `${downstreams} downstreams of each task: deliveries beside the tasks of a relay with one`,
    subject: ackbox('ackbox', { each: downstreams }, 'fanout'),
    baseline: relay
  },
  {
    name: 'apart',
    what: 'a process for the API, another for worker and dispatcher; beside one process for all',
    subject: two('api', { ROLE: 'api' }, { ROLE: 'worker,dispatcher' }),
    baseline: alone
  },
  {
    name: 'workers',
    what: 'one process for all, another with the role worker; beside the first alone',
    subject: two('service', {}, { ROLE: 'worker' }),
    baseline: alone
  }
]

function ackbox(name: string, way: Setup['way'], handlers?: string): Setup {
  const more: Record<string, string> =
    handlers === undefined
      ? {}
      : { HANDLERS_DIR: fileURLToPath(new URL(`./handlers/${handlers}`, import.meta.url)) }
  return { name, way, start: (ground, redisUrl) => startAckbox(ground, database, redisUrl, more) }
}

/** Two processes on one database. Tasks are posted to the first, whose costs are reported under `role`. */
function two(role: string, first: Record<string, string>, second: Record<string, string>): Setup {
  return {
    name: 'two processes',
    way: {},
    async start(ground, redisUrl) {
      const target = await startAckbox(ground, database, redisUrl, first)
      try {
        const other = await runAckbox(ground, database, redisUrl, second)
        const { service = 0, ...under } = target.pids
        return {
          ...target,
          pids: { [role]: service, worker: other.pids['service'] ?? 0, ...under },
          stop: async () => void (await Promise.all([target.stop(), other.stop()]))
        }
      } catch (err) {
        await target.stop()
        throw err
      }
    }
  }
}
