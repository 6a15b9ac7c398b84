// Everything a run has seen, as data: the judge looks at nothing else. Times are ms since 1970 by the host's clock.
import type { Code } from './terms.ts'

/** A task as the producer means to post it; everything about it follows from the seed. */
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
  /** Posted again with the same content, so long after the first. */
  againAfterMs?: number
  /** Posted again with another body, which must be refused, once the first was taken. */
  conflictAfterMs?: number
  removeAfterMs?: number
  redeliverAfterMs?: number
  /** It must be refused: nobody knows its code, or its body breaks the schema. */
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
  /** The last word; 0 when the run ended without one. */
  status: number
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
  /** The sink had read everything that had reached it by then, so this came later. `at` is when it was read. */
  cameAfter: number
  /** Which of the sink's connections it came on, by number. */
  connection: number
  /** Its connection ended after this; missing: it never did. */
  closedAfter?: number
  /** What the sink decided: a status, or `hang`, `reset`, `late`. */
  answer: string
  /** When the answer had left; missing when it never did, or nobody waited for it any more. */
  answeredAt?: number
  /** The answer said HANDLED. */
  handled: boolean
}

export interface Receipt {
  taskNo: string
  downstream: string
  attempt: number
  result: 'HANDLED' | 'RETRY'
  token: 'good' | 'bad'
  /** Each try, and what its answer said. */
  tries: (Try & { applied?: boolean; says?: string })[]
}

export interface Exit {
  at: number
  name: string
  pid: number
  launchedAt: number
  code: number | null
  signal: string | null
  /** It had not been ready yet. */
  starting: boolean
  /** What we had done to it; undefined: it ended by itself. */
  by?: 'kill' | 'term'
  /** The end of its log, where we had not killed it. */
  said?: string
}

export interface Fault {
  action: string
  target: string
  /** The launch of a process that it hit, where it hit one. */
  process?: string
  from: number
  /** When its mending began: until then what was killed is dead, and what was stopped stands still. */
  mendedFrom: number
  /** When it was mended: the process ready again, the server up, the sink well. */
  to: number
}

/** One piece of work of the metronome: when it ended, how long it took, and how much of that a processor worked for it. */
export interface Beat {
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

/** What the samples inside the database found; the only thing here that does not come through the public API. */
export interface InsideFinding {
  invariant: 'I10' | 'I32'
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
  faults: Fault[]
  exits: Exit[]
  beats: Beat[]
  /** Where a canary was found, and which. */
  leaks: { where: string; what: string }[]
  inside: InsideFinding[]
  /** When a process heard that it had been called dead. */
  calledDead: { process: string; at: number }[]
  /** Actions that were to run. */
  wanted: string[]
  /** What was stopped before its time by Ctrl-C. */
  interrupted: boolean
}
