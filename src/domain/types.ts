// The glossary of Ackbox. One word for one thing, here and everywhere.
//
//   task        a message that a producer posts; immutable once accepted
//   handler     the template for one messageCode: body schema, downstreams, hooks
//   downstream  a named destination: a transport, a request, a retry policy, limits
//   delivery    one task x one downstream; carries the state, the only hot row
//   claim       a process takes a delivery for a time, its lease, to send it
//   attempt     the number of a claim, and what became of it: its outcome. It only grows
//   try         an attempt that counts against `retryTimes`. What was claimed and not sent is no try
//   round       all tries until a delivery ends; an operator's redelivery begins a new one
//   phase       what a SENDING delivery is doing: BLOCKED, WAITING, IN_FLIGHT, AWAITING_RECEIPT
//   clock       `next_action_at` of a SENDING delivery: when it is due, its lease ends or its receipt is missing
//   move        a change of a delivery from one state to another (transitions.ts)
//   sweep       a periodic look for what was left undone; that of the dispatcher also claims what is due
//   receipt     a message of a downstream about a delivery, by POST /callback or from a queue
//   outcome     the result of an attempt: data, never an exception
//   lease       the time in which the current attempt owns its delivery
//   outbox row  a task that a producer wrote inside its own transaction; Ackbox accepts it later
//   prerequisite  a task that another task, its dependent, names in `after` and waits for
//   orderingKey  deliveries of one downstream with the same key run one after the other, by position; the head is the one that may run
//   job         an entry of BullMQ: ids and attempt numbers; a lost job costs only time
//   half message  a task posted as prepared: nothing is delivered until it is committed
//   probe       a question to a downstream before a task is sent again: has it handled the task?
//   process     a running Ackbox, with some of the roles api, worker and dispatcher
//   node        the name of a process, for people and logs
//   owner       the number by which a process owns the deliveries that it claims; after it was declared dead, it gets a new one. The column of an operation: the node that runs it
//   settle      an operator records how a delivery ended
//   operation   a bulk change in the background, with progress
//   check       a question to the producer of a half message that is still open: was it committed? (check-back)

/** The numbers of the classic table, stored in `delivery.status`. The API uses the words. */
export const statusNumber = { DELETED: -1, SENDING: 0, HANDLED: 1, FAILED: 2 } as const
export type Status = keyof typeof statusNumber

const statusWords = new Map<number, Status>(
  Object.entries(statusNumber).map(([word, number]) => [number, word as Status])
)
export const statusWord = (number: number): Status => statusWords.get(number) ?? 'DELETED'

/** The status of a task. PREPARED: its deliveries are not made yet. CANCELLED: they never will be. */
export const taskStatuses = ['DELETED', 'SENDING', 'HANDLED', 'FAILED', 'PREPARED', 'CANCELLED'] as const
export type TaskStatus = (typeof taskStatuses)[number]

/** The values of `task.state`. ACTIVE: the task has deliveries, and their status is its status. */
export type TaskState = 'ACTIVE' | 'PREPARED' | 'CANCELLED'

/** The answer of a producer to a check. NONE: the answer was not understood. */
export const checkAnswers = ['COMMITTED', 'ROLLED_BACK', 'UNKNOWN', 'NONE'] as const
export type CheckAnswer = (typeof checkAnswers)[number]

/** The phase of a SENDING delivery. Null in every other status. */
export const phases = ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'BLOCKED'] as const
export type Phase = (typeof phases)[number]

/** Why a delivery ended. */
export const reasons = [
  'SEND_EXHAUSTED',
  'RECEIPT_TIMEOUT',
  'REFUSED',
  'RECEIPT_FAILED',
  'EXPIRED',
  'SKIPPED',
  'DELETED',
  'DEPENDENCY_DELETED'
] as const
export type Reason = (typeof reasons)[number]

/** What an open delivery waits for (waiting-for.ts). */
export const waitingCodes = [
  'NEXT_ATTEMPT',
  'ROOM',
  'ANSWER',
  'RECEIPT',
  'TASK',
  'PAUSED',
  'HANDLER',
  'WORKER',
  'DISPATCHER'
] as const

export const handledBys = ['send', 'answer', 'receipt', 'probe', 'operator'] as const
export type HandledBy = (typeof handledBys)[number]

export const receiptResults = ['HANDLED', 'FAILED', 'RETRY', 'PROCESSING'] as const
export type ReceiptResult = (typeof receiptResults)[number]

export const alarmKinds = [
  'FAILED',
  'NO_HANDLER',
  'BLOCKED_TARGET',
  'TLS',
  'REJECTED',
  'DEPENDENCY_FAILED',
  'PREPARED_STUCK',
  'KEY_HELD',
  'MISMATCH'
] as const
export type AlarmKind = (typeof alarmKinds)[number]

/** Selects the alarms of a channel. A member that is not set matches all alarms. */
export interface AlarmRule {
  kinds?: AlarmKind[]
  downstreams?: string[]
  messageCodes?: string[]
}

/** How the handled tasks of a downstream differ from the tasks that are HANDLED here. */
export const differenceKinds = ['MISSING', 'DIFFERS', 'UNKNOWN'] as const
export type DifferenceKind = (typeof differenceKinds)[number]

/** Who acts: the name of an API key with its id, or `cli:` and a user. Several keys may have one name, as in a rotation. */
export interface Actor {
  name: string
  keyId?: string
}

/** A posted task, as handlers and hooks see it. `messageBody` is the text exactly as posted. */
export interface Task {
  id: string
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: string
  deliverStartTime: Date | null
  needCallback: boolean | null
  /** The most tries in total, the first included, whatever its name says. */
  retryTimes: number | null
  orderingKey: string | null
  extend: unknown
  traceparent: string | null
  createdAt: Date
  createdBy: string
}

/** The recorded details of an attempt. All are optional; the transport bounds their size. */
export interface Evidence {
  /** The HTTP status, or the closest equivalent of the transport. */
  status?: number
  /** At most 16 kB of the raw answer. */
  answer?: Uint8Array
  /** At most 50 pairs and 8 kB. */
  headers?: [name: string, value: string][]
  /** The address of the connection, `ip:port`. */
  address?: string
  warning?: string
  /** The broker's own id of the message: `topic/partition/offset`, `stream/sequence`, the id of an entry. */
  messageId?: string
  /** What was sent. Not of a first attempt that was delivered. */
  request?: SentRequest
}

/** The request of an attempt, whether or not it reached the downstream. */
export interface SentRequest {
  transport: string
  /** Only HTTP. */
  method?: string
  /** The URL, or what the transport has in its place, without secrets. */
  target?: string
  /** Of headers, attachments, properties or fields: those of the handler, then those of Ackbox. */
  headerNames: string[]
  /** The body that the signature covers. Undefined: the attempt failed before there was one. */
  body?: { bytes: number; sha256: Uint8Array }
}

/** The result of an attempt. Failures of the downstream are data; an exception is our own bug. */
export type Outcome =
  /** The downstream has it. `handled`: its answer was the receipt (`ackbox-result: HANDLED`). */
  | ({ kind: 'delivered'; handled?: boolean } & Evidence)
  /** The downstream will never accept it. */
  | ({ kind: 'refused'; reason: string } & Evidence)
  /** The downstream may accept it later. `alarm`: the first failure raises an alarm, and retries are slow. */
  | ({ kind: 'failed'; reason: string; retryAfterMs?: number; alarm?: 'BLOCKED_TARGET' | 'TLS' } & Evidence)

/** How an attempt ended. `probed`: nothing was sent, since the downstream answered that it has handled the task. */
export type AttemptEnd = Outcome | ({ kind: 'probed' } & Evidence)

/** Waits between tries in ms. `list`: the last value repeats, so one value is a fixed wait. */
export type Backoff = { kind: 'exponential'; firstMs: number; maxMs: number } | { kind: 'list'; ms: number[] }
