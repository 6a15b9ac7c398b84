// How a handler says what it cannot do now, or will never do; and what else can be wrong with a message.
import { AdapterError } from '../adapter/transaction.ts'

/** Not now: the work is rolled back, and Ackbox sends again after its backoff, at the earliest in `afterMs` (1 s by default, 1 h at most). */
export class Retry extends Error {
  override name = 'Retry'
  readonly afterMs: number
  constructor(afterMs = 1_000, options?: ErrorOptions) {
    super(`Not now: again in ${afterMs} ms.`, options)
    this.afterMs = afterMs
  }
}

/** Never: the work is rolled back, and the delivery ends FAILED with an alarm. Operators read the reason. */
export class Refuse extends Error {
  override name = 'Refuse'
  readonly reason: string
  constructor(reason: string, options?: ErrorOptions) {
    super(reason, options)
    this.reason = reason
  }
}

/** Not signed with a known secret, or its bytes were changed on the way. Nothing was asked of the database. */
export class InvalidSignature extends AdapterError {
  override name = 'InvalidSignature'
}

/** It lay somewhere until after the time that Ackbox promised to send it at: whether it was handled may be forgotten. */
export class TooOld extends AdapterError {
  override name = 'TooOld'
}
