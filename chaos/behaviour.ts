// How the sink handles a request. It follows from seed, task, downstream and the number of the request, so that a seed is repeatable.
import { chance, weighted } from './random.ts'
import { timeoutMs } from './terms.ts'

export type Fate = 'good' | 'shaky' | 'doomed'

/** `reset` cuts the connection; `hang` never answers; `late` answers well after the service has given up. */
export type Answer =
  | { kind: 'status'; status: number; afterMs: number }
  | { kind: 'hang' }
  | { kind: 'reset' }
  | { kind: 'late'; afterMs: number }

export interface PlannedReceipt {
  /** Counted from the arrival of the request. A receipt before the answer overtakes it. */
  afterMs: number
  result: 'HANDLED' | 'RETRY'
  token: 'good' | 'bad'
}

export interface Behaviour {
  answer: Answer
  /** The answer itself reports HANDLED. */
  handled: boolean
  receipts: PlannedReceipt[]
}

/** The fate of a task in all its attempts. A doomed task ends FAILED unless it is mended. */
export const fateOf = (seed: number, taskNo: string, doomed = true): Fate =>
  weighted(chance(seed, `fate ${taskNo}`), { good: 66, shaky: 29, doomed: doomed ? 5 : 0 })

export type Mode = 'well' | 'fail' | 'hang' | 'reset' | 'late'

/** `nth` counts the requests of this delivery from 0; `mode` is the fault that the nemesis sets for the whole sink. */
export function behaviour(
  seed: number,
  about: {
    taskNo: string
    downstream: string
    nth: number
    owed: boolean
    mended: boolean
    /** Whether tasks may be doomed. */
    doomed?: boolean
  },
  mode: Mode
): Behaviour {
  const { taskNo, downstream, nth, owed, mended } = about
  const by = chance(seed, `sink ${taskNo} ${downstream} ${nth}`)
  const fate = mended ? 'good' : fateOf(seed, taskNo, about.doomed)
  const badFor = chance(seed, `bad ${taskNo} ${downstream}`).whole(1, 3)
  const isBad = fate === 'doomed' || (fate === 'shaky' && nth < badFor)
  const answer = mode === 'well' ? (isBad ? badAnswer() : wellAnswer()) : outage(mode)
  const isWell = answer.kind === 'late' || (answer.kind === 'status' && answer.status < 300)
  if (!owed || !isWell) return { answer, handled: false, receipts: [] }
  return receiptsFor(answer.afterMs)

  function wellAnswer(): Answer {
    const slow = by.hit(0.12)
    return {
      kind: 'status',
      status: by.pick([200, 200, 201, 204]),
      afterMs: slow ? by.whole(300, 1_200) : by.whole(2, 60)
    }
  }

  function badAnswer(): Answer {
    // A doomed task never gets a good answer, not even a late one. Where a receipt is owed, a missing receipt would also do.
    const how = weighted(by, { s500: 40, s429: 20, reset: 15, hang: 10, late: fate === 'doomed' ? 0 : 15 })
    switch (how) {
      case 's500':
        return { kind: 'status', status: by.pick([500, 502, 503]), afterMs: by.whole(2, 100) }
      case 's429':
        return { kind: 'status', status: 429, afterMs: by.whole(2, 50) }
      case 'late':
        return { kind: 'late', afterMs: timeoutMs + by.whole(200, 900) }
      case 'hang':
      case 'reset':
        return { kind: how }
    }
  }

  function outage(all: Exclude<Mode, 'well'>): Answer {
    if (all === 'fail') return { kind: 'status', status: 503, afterMs: by.whole(1, 20) }
    if (all === 'late') return { kind: 'late', afterMs: timeoutMs + by.whole(100, 700) }
    return { kind: all }
  }

  function receiptsFor(answeredMs: number): Behaviour {
    const good = (afterMs: number, result: PlannedReceipt['result'] = 'HANDLED'): PlannedReceipt => ({
      afterMs,
      result,
      token: 'good'
    })
    const bad = (afterMs: number): PlannedReceipt => ({ ...good(afterMs), token: 'bad' })
    const soon = answeredMs + by.whole(5, 300)
    const how = weighted(by, {
      soon: 44,
      early: 14,
      late: 10,
      twice: 8,
      retry: nth < 2 ? 8 : 0,
      none: nth < 2 ? 4 : 0,
      bad: 8,
      answer: 4
    })
    switch (how) {
      case 'soon':
        return { answer, handled: false, receipts: [good(soon)] }
      case 'early':
        return { answer: slower(answer), handled: false, receipts: [good(by.whole(0, 100))] }
      case 'late':
        return { answer, handled: false, receipts: [good(answeredMs + by.whole(1_500, 4_500))] }
      case 'twice':
        return { answer, handled: false, receipts: [good(soon), good(soon + by.whole(0, 500))] }
      case 'retry':
        return { answer, handled: false, receipts: [good(soon, 'RETRY')] }
      case 'none':
        return { answer, handled: false, receipts: [bad(soon)] }
      case 'bad':
        return { answer, handled: false, receipts: [bad(answeredMs + 5), good(soon + 400)] }
      case 'answer':
        return { answer, handled: true, receipts: [] }
    }
  }

  /** Leaves the receipt time to overtake the answer. */
  function slower(fast: Answer): Answer {
    return fast.kind === 'status' ? { ...fast, afterMs: Math.max(fast.afterMs, by.whole(300, 900)) } : fast
  }
}
