// Tiny histories, written by hand: one task that went well. A test changes parts of it.
import { createHash } from 'node:crypto'
import type {
  Arrival,
  Call,
  Exit,
  Fault,
  History,
  PlannedTask,
  Receipt,
  SeenTask
} from '../../chaos/history.ts'

/** An arbitrary moment. All times of a history count from it. */
export const start = Date.parse('2026-11-20T10:00:00Z')

export const planned: PlannedTask = { atMs: 0, taskNo: 'a', messageCode: 'chaos.plain', body: '{"n":1.0}' }

export const call = (kind: Call['kind'], status: number, at = 0): Call => ({
  taskNo: 'a',
  kind,
  status,
  tries: [{ at: start + at, ms: 10, status }]
})

export const arrival = (more: Partial<Arrival> = {}): Arrival => ({
  at: start + 50,
  sender: 'worker-1#1',
  // By default it was read at the moment at which it was built.
  builtAt: more.at ?? start + 50,
  cameAfter: more.at ?? start + 50,
  taskNo: 'a',
  downstream: 'plain',
  attempt: 1,
  hash: createHash('sha256').update(planned.body).digest('hex'),
  signed: true,
  owed: false,
  connection: 1,
  answer: '200',
  answeredAt: start + 60,
  handled: false,
  ...more
})

type Delivery = SeenTask['deliveries'][number]

export const task = (more: Partial<Delivery> = {}, about: Partial<SeenTask> = {}): SeenTask => ({
  taskNo: 'a',
  status: more.status ?? 'HANDLED',
  deliveries: [
    {
      downstream: 'plain',
      status: 'HANDLED',
      attempt: 1,
      handledAt: new Date(start + 70).toISOString(),
      handledBy: 'send',
      attempts: [{ attempt: 1, outcome: 'delivered', startedAt: new Date(start + 45).toISOString() }],
      receipts: [],
      ...more
    }
  ],
  ...about
})

export const rows = (count: number): Delivery['attempts'] =>
  Array.from({ length: count }, (_, at) => ({
    attempt: at + 1,
    outcome: 'failed',
    startedAt: new Date(start).toISOString()
  }))

/** One task, posted, delivered at once and HANDLED. It brings no charge. */
export const history = (more: Partial<History> = {}): History => ({
  seed: 1,
  startedAt: start,
  loadEndedAt: start + 60_000,
  clockAheadMs: 0,
  planned: [planned],
  calls: [call('first', 201)],
  arrivals: [arrival()],
  receipts: [],
  tasks: [task()],
  alarms: [],
  messages: [],
  faults: [],
  exits: [],
  cpuSamples: [],
  leaks: [],
  inside: [],
  insideSamples: 60,
  calledDead: [],
  wanted: [],
  interrupted: false,
  ...more
})

export const receipt = (
  more: Partial<Receipt> = {},
  tried: Partial<Receipt['tries'][number]> = {}
): Receipt => ({
  taskNo: 'a',
  downstream: 'receipted',
  attempt: 1,
  result: 'HANDLED',
  token: 'good',
  tries: [{ at: start + 100, ms: 10, status: 200, applied: true, deliveryStatus: 'HANDLED', ...tried }],
  ...more
})

/** The same history, with a receipt that is owed, sent and applied. */
export const receipted = (more: Partial<History> = {}): History =>
  history({
    planned: [{ ...planned, messageCode: 'chaos.receipt' }],
    arrivals: [arrival({ downstream: 'receipted', owed: true })],
    receipts: [receipt()],
    tasks: [task({ downstream: 'receipted', handledBy: 'receipt' })],
    ...more
  })

export const iso = (ms: number): string => new Date(start + ms).toISOString()
export const fault = (action: string, from: number, to: number, process?: string): Fault => ({
  action,
  target: 'it',
  ...(process !== undefined && { process }),
  from: start + from,
  mendedFrom: start + to,
  to: start + to
})
export const exit = (more: Partial<Exit> = {}): Exit => ({
  at: start,
  launchedAt: start - 60_000,
  name: 'api-1',
  pid: 1,
  code: 1,
  signal: null,
  starting: false,
  ...more
})

export const delivered = (count: number) => rows(count).map(row => ({ ...row, outcome: 'delivered' }))

/** worker-1#1 sent attempt 1. It was answered and has no row. Another worker sent attempt 2 after the lease ended. */
export function takenAlong(
  first: Partial<Arrival> = {},
  second: Partial<Arrival> = {},
  more: Partial<History> = {}
) {
  return history({
    arrivals: [
      arrival(first),
      arrival({ attempt: 2, at: start + 4_000, answeredAt: start + 4_010, sender: 'worker-2#1', ...second })
    ].sort((a, b) => a.at - b.at),
    tasks: [task({ attempt: 2, attempts: rows(2).slice(1), handledAt: iso(4_020) })],
    faults: [fault('kill.worker', 100, 900, 'worker-1#1')],
    ...more
  })
}
