import { statusNumber, type HandledBy, type Phase, type Reason, type Status } from './types.ts'

/** The state of a delivery: its phase while SENDING, otherwise its status. */
export type State = Phase | Exclude<Status, 'SENDING'>
export const states: readonly State[] = [
  'WAITING',
  'IN_FLIGHT',
  'AWAITING_RECEIPT',
  'BLOCKED',
  'FAILED',
  'HANDLED',
  'DELETED'
]

export interface Rule {
  readonly from: readonly State[]
  readonly to: State
  /** The change of `tries_left`. 'anew' starts a new round. */
  readonly tries: -1 | 0 | 1 | 'anew'
  readonly lost?: 1
  /** Which attempt a move may name: the current one, or any of the current round. */
  readonly attempt: 'current' | 'of round'
  /** It begins the next attempt, with a lease, and its process owns the delivery. */
  readonly claims?: true
  /** What becomes of its place in an orderingKey. 'kept': only while it has one that counts. 'left': it is out of order from now on. */
  readonly place?: 'kept' | 'left'
  /** The new `next_action_at`, in words. Null for a state without a clock. */
  readonly clock: string | null
  readonly who: string
  readonly when: string
}

/**
 * Every change of a delivery's state is one of these moves. `applyMoves` (db/transitions.ts, with narrow versions in sends.ts and
 * receipts.ts) writes them, except `claim` (db/deliveries.ts, and db/new-deliveries.ts at the accept), and `promote` and `unblock` of
 * an orderingKey (the function `promote` in SQL).
 * The guard in SQL is the move's `from` and the attempt number: a late writer changes 0 rows.
 */
export const moves = {
  claim: {
    from: ['WAITING'],
    to: 'IN_FLIGHT',
    tries: -1,
    attempt: 'current',
    claims: true,
    clock: 'now + lease',
    who: 'accept, dispatcher',
    when: 'it is due and its downstream is open'
  },
  unblock: {
    from: ['BLOCKED'],
    to: 'WAITING',
    tries: 0,
    attempt: 'current',
    clock: 'now, or its start time',
    who: 'the process that ends the last task it waits for, accept, dispatcher',
    when: 'every task that it waits for is HANDLED, and it is the head of its orderingKey'
  },
  promote: {
    from: ['BLOCKED'],
    to: 'IN_FLIGHT',
    tries: -1,
    attempt: 'current',
    claims: true,
    clock: 'now + lease',
    who: 'the process that ends the delivery before it, dispatcher',
    when: 'it is the head of its orderingKey, waits for no other task, is due, and its downstream has room'
  },
  release: {
    from: ['IN_FLIGHT'],
    to: 'WAITING',
    tries: 1,
    attempt: 'current',
    clock: 'now, or after a pause set by the worker',
    who: 'worker, accept, dispatcher',
    when: 'it was claimed but not sent: beforeSend postpones it, the lease is too short, no job was added, paused, no worker, no handler, the process stops, the database is away; or only other workers reach its downstream'
  },
  lose: {
    from: ['IN_FLIGHT'],
    to: 'WAITING',
    tries: 1,
    lost: 1,
    attempt: 'current',
    clock: 'now',
    who: 'dispatcher, worker',
    when: 'its lease ended or its process stopped, for the first two times of a round'
  },
  sent: {
    from: ['IN_FLIGHT'],
    to: 'AWAITING_RECEIPT',
    tries: 0,
    attempt: 'current',
    clock: 'now + receipt timeout',
    who: 'worker',
    when: 'it is delivered, and a receipt is expected'
  },
  handled: {
    from: ['IN_FLIGHT'],
    to: 'HANDLED',
    tries: 0,
    attempt: 'current',
    clock: null,
    who: 'worker',
    when: 'it is delivered, and no receipt is expected or the answer was the receipt'
  },
  probed: {
    from: ['IN_FLIGHT'],
    to: 'HANDLED',
    tries: 0,
    attempt: 'current',
    clock: null,
    who: 'worker',
    when: 'an earlier attempt may have arrived, and its downstream says, when asked, that it has handled the task'
  },
  retry: {
    from: ['IN_FLIGHT', 'AWAITING_RECEIPT'],
    to: 'WAITING',
    tries: 0,
    attempt: 'current',
    clock: 'now + backoff, at most deliverBefore',
    who: 'worker, dispatcher, callback',
    when: 'it failed, no receipt came in time, or the receipt was RETRY'
  },
  fail: {
    from: ['IN_FLIGHT', 'AWAITING_RECEIPT', 'WAITING', 'BLOCKED'],
    to: 'FAILED',
    tries: 0,
    attempt: 'current',
    clock: null,
    who: 'worker, dispatcher, callback, operator',
    when: 'its tries are used up, it was refused, it expired, the receipt was FAILED, or a task that it waits for was deleted'
  },
  skip: {
    from: ['IN_FLIGHT'],
    to: 'DELETED',
    tries: 0,
    attempt: 'current',
    clock: null,
    who: 'worker',
    when: "the handler's beforeSend skips it"
  },
  receive: {
    from: ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'BLOCKED', 'FAILED'],
    to: 'HANDLED',
    tries: 0,
    attempt: 'of round',
    clock: null,
    who: 'callback',
    when: 'the receipt of any attempt of this round was HANDLED'
  },
  extend: {
    from: ['AWAITING_RECEIPT', 'WAITING'],
    to: 'AWAITING_RECEIPT',
    tries: 0,
    attempt: 'current',
    clock: 'now + receipt timeout, at most 24 h after delivery',
    who: 'callback',
    when: 'the receipt was PROCESSING'
  },
  redeliver: {
    from: ['FAILED'],
    to: 'WAITING',
    tries: 'anew',
    attempt: 'current',
    clock: 'now, or its start time if it was never tried',
    who: 'operator',
    when: 'requested'
  },
  // A separate move: only `promote`, which locks the orderingKey, can decide whether it is the head.
  requeue: {
    from: ['FAILED'],
    to: 'BLOCKED',
    tries: 'anew',
    attempt: 'current',
    place: 'kept',
    clock: 'deliverBefore, or the year 9999',
    who: 'operator',
    when: 'a redelivery is requested, and it has its place in its orderingKey still'
  },
  // A separate move: a receipt that arrives during a redelivery without force must win.
  repeat: {
    from: ['HANDLED'],
    to: 'WAITING',
    tries: 'anew',
    attempt: 'current',
    place: 'left',
    clock: 'now, or its start time if it was never tried',
    who: 'operator',
    when: 'requested with force'
  },
  push: {
    from: ['WAITING'],
    to: 'WAITING',
    tries: 0,
    attempt: 'current',
    clock: 'now',
    who: 'operator',
    when: 'requested while it waits for its next try'
  },
  settle: {
    from: ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'BLOCKED', 'FAILED'],
    to: 'HANDLED',
    tries: 0,
    attempt: 'current',
    clock: null,
    who: 'operator',
    when: 'an operator says that it was handled'
  },
  delete: {
    from: ['WAITING', 'IN_FLIGHT', 'AWAITING_RECEIPT', 'BLOCKED', 'FAILED'],
    to: 'DELETED',
    tries: 0,
    attempt: 'current',
    clock: null,
    who: 'operator',
    when: 'requested; from FAILED only when it is settled'
  }
} as const satisfies Record<string, Rule>

export type MoveName = keyof typeof moves
export const moveNames = Object.keys(moves) as MoveName[]
const rules: Readonly<Record<MoveName, Rule>> = moves

/** A requested change of one delivery. `attempt` is the fence. `receive` accepts any attempt of the round. */
export interface Move {
  taskId: string
  downstream: string
  attempt: number
  name: MoveName
  /** ms from now until the next action, for moves to a state with a clock. */
  afterMs?: number
  reason?: Reason
  handledBy?: HandledBy
  /** The tries of the new round, for `redeliver`, `requeue` and `repeat`. */
  retryTimes?: number
  /** Only if its clock has ended: guards a decision of the dispatcher against later changes. */
  overdue?: boolean
  /** Only while the process of this number owns it, or none if it is 0: meanwhile a worker of another process may have taken it over. */
  owner?: number
  /** The operator who requested it. */
  by?: string
  /** The key of its delivery, if it has one: the end of a delivery lets the next delivery of its key start. */
  orderingKey?: string | null
  /**
   * Only if the delivery still has this state, as it had when it was read. IN_FLIGHT: after a delivery was taken back, the result of its
   * worker changes nothing.
   */
  ifStill?: 'SENDING' | 'FAILED' | Phase
  /** Only while its deliverBefore has not passed. */
  timely?: true
}

export const statusOf = (state: State): Status =>
  state === 'FAILED' || state === 'HANDLED' || state === 'DELETED' ? state : 'SENDING'
export const phaseOf = (state: State): Phase | null =>
  state === 'FAILED' || state === 'HANDLED' || state === 'DELETED' ? null : state

/** A set of states as bits, in the order of `states`: this form of a guard goes to SQL. */
export const stateBits = (set: readonly State[]): number =>
  set.reduce((bits, state) => bits | (1 << states.indexOf(state)), 0)

/** The properties of a move that SQL needs, computed once. */
interface Effect {
  fromBits: number
  status: number
  phase: Phase | null
  tries: number
  lost: number
}
export const effects = Object.fromEntries(
  moveNames.map(name => {
    const rule = rules[name]
    return [
      name,
      {
        fromBits: stateBits(rule.from),
        status: statusNumber[statusOf(rule.to)],
        phase: phaseOf(rule.to),
        tries: rule.tries === 'anew' ? 0 : rule.tries,
        lost: rule.lost ?? 0
      }
    ]
  })
) as Record<MoveName, Effect>
