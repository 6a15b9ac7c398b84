// The glossary of Ackbox. One word for one thing, here and everywhere.
//
//   task        what a producer posts; immutable once accepted
//   handler     the template for one messageCode: body schema, downstreams, hooks
//   downstream  a named destination: a transport, a request, a retry policy, limits
//   delivery    one task x one downstream; carries the state, the only hot row
//   attempt     one try of a delivery, with its outcome
//   receipt     what a downstream POSTs to /callback about a delivery
//   outcome     what an attempt came to: data, never a throw
//   lease       until when the current attempt owns its delivery
//   hint        the queue's job: ids and attempt numbers; losing one costs time only

/** The classic table's numbers, kept in `delivery.status`; the API speaks the words. */
export const statusNumber = { DELETED: -1, SENDING: 0, HANDLED: 1, FAILED: 2 } as const
export type Status = keyof typeof statusNumber

/** Where a SENDING delivery stands; null in every other status. */
export const phases = ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT'] as const
export type Phase = (typeof phases)[number]

/** Why a delivery ended. */
export const reasons = [
  'SEND_EXHAUSTED',
  'RECEIPT_TIMEOUT',
  'REFUSED',
  'RECEIPT_FAILED',
  'EXPIRED',
  'SKIPPED',
  'DELETED'
] as const
export type Reason = (typeof reasons)[number]

export const handledBys = ['send', 'answer', 'receipt'] as const
export type HandledBy = (typeof handledBys)[number]

export const receiptResults = ['HANDLED', 'FAILED', 'RETRY', 'PROCESSING'] as const
export type ReceiptResult = (typeof receiptResults)[number]

export const alarmKinds = ['FAILED', 'NO_HANDLER', 'BLOCKED_TARGET', 'TLS'] as const
export type AlarmKind = (typeof alarmKinds)[number]

/** What was posted, as handlers and hooks see it. `messageBody` is the very text that was posted. */
export interface Task {
  id: string
  taskNo: string
  messageCode: string
  sceneType: string
  messageBody: string
  deliverStartTime: Date | null
  needCallback: boolean | null
  retryTimes: number | null
  extend: unknown
  traceparent: string | null
  createdAt: Date
  createdBy: string
}

/** What an attempt left behind as evidence; all of it optional, bounded by the transport that made it. */
export interface Evidence {
  /** HTTP status, or the nearest the transport has. */
  status?: number
  /** At most 16 kB of the raw answer. */
  answer?: Uint8Array
  /** At most 50 pairs and 8 kB. */
  headers?: [name: string, value: string][]
  /** The address that was talked to, `ip:port`. */
  address?: string
  warning?: string
}

/** What an attempt came to. What the world does is data; a throw is our own bug. */
export type Outcome =
  /** It has it. `handled`: its answer was the receipt (`ackbox-result: HANDLED`). */
  | ({ kind: 'delivered'; handled?: boolean } & Evidence)
  /** It will never take this one. */
  | ({ kind: 'refused'; reason: string } & Evidence)
  /** It may take it later. `alarm`: a person must hear of it at the first time, and retries are slow. */
  | ({ kind: 'failed'; reason: string; retryAfterMs?: number; alarm?: 'BLOCKED_TARGET' | 'TLS' } & Evidence)

/** Waits between tries in ms. `list`: its last value repeats, so one value is a fixed wait. */
export type Backoff = { kind: 'exponential'; firstMs: number; maxMs: number } | { kind: 'list'; ms: number[] }
