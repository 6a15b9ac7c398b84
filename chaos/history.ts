// All observations of a run, as data. The judge reads nothing else. Times are ms since 1970 by the host's clock.
import type { Code } from './terms.ts'

/** A task as the producer will post it. All its fields follow from the seed. */
export interface PlannedTask {
  atMs: number
  taskNo: string
  messageCode: Code | 'chaos.nobody'
  /** The text of messageBody. */
  body: string
  startInMs?: number
  delayMs?: number
  needCallback?: boolean
  retryTimes?: number
  orderingKey?: string
  /** Posted again with the same content, this long after the first POST. */
  againAfterMs?: number
  /** Posted again with another body after the first was accepted. This must be refused. */
  conflictAfterMs?: number
  removeAfterMs?: number
  redeliverAfterMs?: number
  /** It must be refused: its code is unknown, or its body breaks the schema. */
  isWrong?: true
}

export interface Try {
  at: number
  ms: number
  /** 0: no answer. */
  status: number
}

export interface Call {
  taskNo: string
  kind: 'first' | 'again' | 'conflict' | 'wrong' | 'look' | 'remove' | 'redeliver'
  tries: Try[]
  /** The status of the last try; 0 when the run ended without an answer. */
  status: number
  /** The deliverStartTime of a first POST, if it has one. */
  startAt?: number
}

export interface Arrival {
  at: number
  taskNo: string
  downstream: string
  attempt: number
  /** Its ackbox-sequence; missing without an orderingKey. */
  sequence?: number
  /** SHA-256 of the body's bytes, hex. */
  hash: string
  signed: boolean
  owed: boolean
  /** The launch of a process that sent it: `Member.process`. */
  sender: string
  /** When its sender built it. */
  builtAt: number
  /** By then the sink had read everything that had reached it, so this came later. `at` is the time of the read. */
  cameAfter: number
  /** The number of its connection at the sink. */
  connection: number
  /** Its connection ended after this time. Missing if it never ended. */
  closedAfter?: number
  /** The answer of the sink: a status, or `hang`, `reset`, `late`. */
  answer: string
  /** When the answer was sent. Missing if it was never sent, or the client had given up. */
  answeredAt?: number
  /** The answer itself reported HANDLED. */
  handled: boolean
}

export interface Receipt {
  taskNo: string
  downstream: string
  attempt: number
  result: 'HANDLED' | 'RETRY'
  token: 'good' | 'bad'
  /** Each try, with the fields of its answer. */
  tries: (Try & { applied?: boolean; deliveryStatus?: string })[]
}

export interface Exit {
  at: number
  name: string
  pid: number
  launchedAt: number
  code: number | null
  signal: string | null
  /** It was not ready yet. */
  starting: boolean
  /** The signal that the run sent. Undefined if the process ended by itself. */
  by?: 'kill' | 'term'
  /** The end of its log, unless the run killed it. */
  logTail?: string
}

export interface Fault {
  action: string
  target: string
  /** The launch of the process that it hit, if any. */
  process?: string
  from: number
  /** When its mending began. Until then a killed process is dead, and a stopped process is held. */
  mendedFrom: number
  /** When it was mended: the process ready again, the server up, the sink well. */
  to: number
}

/** One piece of work of the CPU probe: its end, its duration, and its CPU time. */
export interface CpuSample {
  at: number
  ms: number
  workedMs: number
}

export interface SeenDelivery {
  downstream: string
  status: 'SENDING' | 'HANDLED' | 'FAILED' | 'DELETED'
  attempt: number
  position?: number
  reason?: string
  handledAt?: string
  handledBy?: string
  attempts: { attempt: number; outcome: string; startedAt: string }[]
  receipts: { attempt: number; result: string; applied: boolean }[]
}

/** A task as the API showed it at the end; `missing` when it answered 404. */
export interface SeenTask {
  taskNo: string
  status: string
  deliverStartTime?: string
  deliveries: SeenDelivery[]
  missing?: true
}

export interface SeenAlarm {
  taskNo: string
  downstream: string
  attempt: number
  kind: string
  createdAt: string
  sentAt?: string
  resolvedAt?: string
}

/** A message to the alarm channel, and the status that it was answered with. It lists the first of the alarms that it counts. */
export interface AlarmMessage {
  at: number
  status: number
  downstream: string
  kind: string
  count: number
  deliveries: { taskNo: string; attempt: number }[]
}

/** A finding of the samples inside the database. Nothing else here bypasses the public API. */
export interface InsideFinding {
  invariant: 'I10' | 'I32' | 'move'
  taskNo: string
  detail: string
}

export interface History {
  seed: number
  startedAt: number
  loadEndedAt: number
  /** ms that the database's clock is ahead of the host's. */
  clockAheadMs: number
  planned: PlannedTask[]
  calls: Call[]
  arrivals: Arrival[]
  receipts: Receipt[]
  tasks: SeenTask[]
  alarms: SeenAlarm[]
  messages: AlarmMessage[]
  faults: Fault[]
  exits: Exit[]
  cpuSamples: CpuSample[]
  /** Where a canary was found, and its name. */
  leaks: { place: string; secret: string }[]
  inside: InsideFinding[]
  /** Samples inside the database that held deliveries. */
  insideSamples: number
  /** When a process logged that it had been declared dead, by the host's clock. */
  calledDead: { process: string; at: number }[]
  /** The planned actions. */
  wanted: string[]
  /** Ctrl-C stopped the run early. */
  interrupted: boolean
}
