// The charges of the judge, each with a sentence. A single finding makes the verdict red.
export const charges = {
  lost: 'answered 2xx, and its downstream never saw it',
  unexpected: 'a downstream saw what was refused or never posted',
  vanished: 'answered 2xx, and the API does not know it',
  stuck: 'not in a final state after everything was mended and had time',
  failedEarly: 'FAILED before its limit was reached',
  corrupted: 'the body that arrived is not the text that was posted, or its signature is wrong',
  early: 'arrived before its start time',
  unaccounted: 'arrived with an attempt that the API does not know',
  nonMonotone: 'attempt numbers fell, or came twice, on their way to a downstream',
  receiptLost: 'a receipt was answered "applied: true", and the delivery is not HANDLED',
  falseHandled: 'HANDLED without a good answer, or without the receipt it owes',
  afterTerminal: 'sent, or changed, after it had come to its end',
  overLimit: 'sent more often than its limit allows',
  conflict: 'the same taskNo with another body was not answered 409',
  refused: 'a good task or a redelivery was refused, a wrong task taken, or an equal one not answered 2xx',
  unanswered: 'never got a clear answer, even after everything was mended',
  silentFailure: 'FAILED, and no message about it was accepted by the alarm channel',
  overdue: 'due, and not attempted within the promised time after the last fault',
  leaked: 'a key, token, secret or password is in a log or in an answer',
  crashed: 'a process ended that nobody had ended, or did not end well at SIGTERM',
  declaredDead: 'a process that lived was declared dead, and nothing had kept it from its beats',
  overtaken: 'sent before the one in front of it, of the same orderingKey, had ended',
  misplaced: 'its place among those of its orderingKey is not that of its acceptance',
  unexplained: 'delivered again without a failure, a timeout or a kill to explain it',
  forged: 'a receipt with a wrong token was not answered 401',
  rollingPost: 'a POST failed during a rolling restart',
  orphan: 'inside the database: SENDING without a clock, or with one too far away (I10)',
  attemptFell: 'inside the database: an attempt number fell (I32)',
  unexplainedMove: 'inside the database: a delivery changed as no move of the table allows'
} as const

/** Charges of the judge of producers only. The others mean the same there. */
export const producerCharges = {
  dropped: 'committed, of no use as a task, and not in sight among the rejected',
  released: 'sent before what it waits for was HANDLED'
} as const

/** Charges of the judge of receivers only. */
export const receiverCharges = {
  inexact: 'the sum that a receiver granted is not what the accepted tasks are worth'
} as const

export type Charge = keyof typeof charges | keyof typeof producerCharges | keyof typeof receiverCharges

export interface Finding {
  charge: Charge
  detail: string
  taskNo?: string
  downstream?: string
}
