import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry } from 'prom-client'
import type { AttemptEnd } from '../domain/types.ts'
import { deliveryGauges } from './delivery-gauges.ts'
import { openStatistics } from './statistics.ts'
import { moveNames } from '../domain/transitions.ts'
import { checkAnswers, reasons, receiptResults, type CheckAnswer } from '../domain/types.ts'

export type Metrics = ReturnType<typeof createMetrics>

interface MetricsOptions {
  processMetrics?: boolean
  /** ms since 1970, by the clock of the database as far as it is known. */
  now?: () => number
  /** The series of their messageCodes and downstreams exist from the start, at 0. */
  handlers?: Iterable<{
    messageCode: string
    downstreams: readonly { name: string }[]
    checkBack?: unknown
    dtm?: unknown
  }>
  /** The names of the channels of alarms. */
  channels?: Iterable<string>
  build?: { version: string; queue: string }
}

/**
 * The metrics of this process, in the words of the glossary. Labels are names from handlers or our own words, never values of a
 * caller: callers cannot create more series.
 */
export function createMetrics({
  processMetrics = true,
  handlers = [],
  channels = [],
  build,
  now = Date.now
}: MetricsOptions = {}) {
  const statistics = openStatistics(now)
  const registry = new Registry()
  const registers = [registry]
  if (processMetrics) collectDefaultMetrics({ register: registry })
  const known = [...handlers]
  const sends = known.flatMap(({ messageCode, downstreams }) =>
    downstreams.map(({ name }) => ({ messageCode, downstream: name }))
  )
  const codes = new Set(known.map(handler => handler.messageCode))
  const names = new Set(sends.map(send => send.downstream))
  /** A row may outlive its handler: its messageCode then gets no series of its own. */
  const codeOf = (messageCode: string | undefined): string =>
    messageCode !== undefined && (codes.size === 0 || codes.has(messageCode)) ? messageCode : 'unknown'

  const counter = <Label extends string>(name: string, help: string, labelNames: Label[]) =>
    new Counter({ name, help, labelNames, registers })
  const accepts = counter(
    'ackbox_accepts_total',
    'Posted tasks by result: created, same, conflict; refused, if a handler knows the messageCode',
    ['message_code', 'kind']
  )
  const attempts = counter('ackbox_attempts_total', 'Ended attempts by outcome', ['downstream', 'outcome'])
  const attemptTime = new Histogram({
    name: 'ackbox_attempt_seconds',
    help: 'Duration of attempts',
    labelNames: ['downstream'],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 60],
    registers
  })
  const receipts = counter(
    'ackbox_receipts_total',
    'Receipts with a valid token, by result and whether they changed anything',
    ['result', 'applied']
  )
  const moves = counter(
    'ackbox_moves_total',
    'Moves of deliveries by name; written="false": another process was faster',
    ['move', 'written']
  )
  const firstAttempts = counter(
    'ackbox_first_attempts_total',
    'First tries of deliveries that ended, by outcome',
    ['message_code', 'downstream', 'outcome']
  )
  const ended = counter(
    'ackbox_deliveries_ended_total',
    'Ended deliveries by status; tries="later": not at the first try',
    ['message_code', 'downstream', 'status', 'tries']
  )
  const endReasons = counter(
    'ackbox_delivery_failures_total',
    'Deliveries that this process ended FAILED, by reason',
    ['downstream', 'reason']
  )
  const yields = counter(
    'ackbox_worker_yields_total',
    'Times this worker left a downstream to other workers that reach it',
    ['downstream']
  )
  if (build)
    new Gauge({
      name: 'ackbox_build_info',
      help: 'Always 1; the labels name the version',
      labelNames: ['version', 'node_version', 'queue'],
      registers
    }).set({ version: build.version, node_version: process.versions.node, queue: build.queue }, 1)
  const lag = new Histogram({
    name: 'ackbox_queue_lag_seconds',
    help: 'Time from the claim of a delivery to the start of its attempt',
    labelNames: ['downstream'],
    buckets: [0.005, 0.02, 0.1, 0.5, 2, 10, 30],
    registers
  })
  const outboxRows = counter(
    'ackbox_outbox_rows_total',
    'Outbox rows this process finished, by result: stored, same, rejected',
    ['result']
  )
  const checks = counter('ackbox_checks_total', 'Checks of half messages by answer of the producer', [
    'message_code',
    'answer'
  ])
  const halves = counter(
    'ackbox_prepared_ended_total',
    'Ended half messages by state and by origin: producer, check',
    ['message_code', 'state', 'by']
  )
  const alarmMessages = counter(
    'ackbox_alarm_messages_total',
    'Messages to alarm channels by outcome: accepted, failed',
    ['channel', 'outcome']
  )
  const hookRejections = counter(
    'ackbox_hook_rejections_total',
    'Promises of handlers that rejected while nothing awaited them; "unknown": without a stack in a handler',
    ['message_code']
  )
  for (const messageCode of codes) {
    hookRejections.inc({ message_code: messageCode }, 0)
    for (const kind of acceptKinds) accepts.inc({ message_code: messageCode, kind }, 0)
  }
  for (const { messageCode, checkBack, dtm } of known) {
    // Only these handlers accept half messages.
    if (!checkBack && !dtm) continue
    for (const answer of checkAnswers) checks.inc({ message_code: messageCode, answer }, 0)
    for (const state of ['COMMITTED', 'ROLLED_BACK'])
      for (const by of ['producer', 'check']) halves.inc({ message_code: messageCode, state, by }, 0)
  }
  for (const channel of channels)
    for (const outcome of ['accepted', 'failed']) alarmMessages.inc({ channel, outcome }, 0)
  for (const { messageCode, downstream } of sends) {
    const labels = { message_code: messageCode, downstream }
    for (const outcome of outcomes) firstAttempts.inc({ ...labels, outcome }, 0)
    for (const status of endings)
      for (const tries of ['first', 'later']) ended.inc({ ...labels, status, tries }, 0)
  }
  for (const downstream of names) {
    for (const outcome of [...outcomes, 'probed']) attempts.inc({ downstream, outcome }, 0)
    for (const reason of reasons) if (!endedOtherwise.has(reason)) endReasons.inc({ downstream, reason }, 0)
    yields.inc({ downstream }, 0)
  }
  for (const result of receiptResults)
    for (const applied of ['true', 'false']) receipts.inc({ result, applied }, 0)
  // Attempts count the claims that were sent.
  for (const move of moveNames)
    if (move !== 'claim') for (const written of ['true', 'false']) moves.inc({ move, written }, 0)
  for (const result of ['stored', 'same', 'rejected']) outboxRows.inc({ result }, 0)

  return {
    /** `at`: when it was stored, by the database's clock. */
    accepted(messageCode: string, kind: 'created' | 'same' | 'conflict' | 'refused', at?: Date) {
      accepts.inc({ message_code: messageCode, kind })
      if (kind === 'created') statistics.accepted(messageCode, at?.getTime())
    },
    attempted(downstream: string, outcome: AttemptEnd['kind'], ms: number) {
      attempts.inc({ downstream, outcome })
      attemptTime.observe({ downstream }, ms / 1000)
    },
    received(result: string, applied: boolean) {
      receipts.inc({ result, applied: String(applied) })
    },
    moved(move: string, written: boolean, n = 1) {
      if (n > 0) moves.inc({ move, written: String(written) }, n)
    },
    /** The first try of a delivery ended. */
    firstAttempt(messageCode: string, downstream: string, outcome: (typeof outcomes)[number]) {
      firstAttempts.inc({ message_code: codeOf(messageCode), downstream, outcome })
    },
    /** A delivery ended, with its first attempt or a later one. */
    ended(
      delivery: { messageCode: string | undefined; downstream: string; isFirstTry: boolean },
      status: (typeof endings)[number],
      reason?: string
    ) {
      const { messageCode, downstream, isFirstTry } = delivery
      ended.inc({
        message_code: codeOf(messageCode),
        downstream,
        status,
        tries: isFirstTry ? 'first' : 'later'
      })
      if (status === 'FAILED') endReasons.inc({ downstream, reason: reason ?? 'unknown' })
    },
    yielded(downstream: string) {
      yields.inc({ downstream })
    },
    queueLag(downstream: string, lagMs: number) {
      lag.observe({ downstream }, lagMs / 1000)
    },
    outboxRows(result: 'stored' | 'same' | 'rejected', n: number) {
      if (n > 0) outboxRows.inc({ result }, n)
    },
    alarmSent(channel: string, outcome: 'accepted' | 'failed') {
      alarmMessages.inc({ channel, outcome })
    },
    checked(messageCode: string, answer: CheckAnswer) {
      checks.inc({ message_code: messageCode, answer })
    },
    halfEnded(messageCode: string, state: 'COMMITTED' | 'ROLLED_BACK', by: 'producer' | 'check') {
      halves.inc({ message_code: messageCode, state, by })
    },
    hookRejected(messageCode: string) {
      hookRejections.inc({ message_code: codeOf(messageCode) })
    },
    ...deliveryGauges(registers, names),
    /** The same by minute, for charts. */
    statistics,
    contentType: registry.contentType,
    render: () => registry.metrics()
  }
}

const outcomes = ['delivered', 'refused', 'failed'] as const
const endings = ['HANDLED', 'FAILED', 'DELETED'] as const
const acceptKinds = ['created', 'same', 'conflict', 'refused'] as const
/** Reasons of deliveries that are not FAILED. */
const endedOtherwise = new Set<string>(['SKIPPED', 'DELETED'])
