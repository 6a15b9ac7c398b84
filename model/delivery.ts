// One delivery and all who touch it: two processes that claim and send, a dispatcher, a downstream that sends receipts, an operator. A read,
// a decision and a write are steps of their own; a guarded write of one row is one step. Time does not exist: a clock is running or has
// ended, and may end at any step, so nothing here trusts a clock.
import { apply, type DeliveryRow, type Written } from '../src/domain/apply.ts'
import { moveOnReceipt } from '../src/domain/receipt-rule.ts'
import { decide, type DeliveryEvent, type Policy } from '../src/domain/retry-policy.ts'
import { moveNames, phaseOf, states, statusOf, type Move } from '../src/domain/transitions.ts'
import { phases, receiptResults } from '../src/domain/types.ts'
import type { Model } from './explore.ts'

/** What a variant leaves out or does wrong, to show that the model finds it. */
export interface Broken {
  /** The row after a move, in place of `apply`. */
  apply?: typeof apply
  /** A worker sends a claim that it did not read, or whose read found another attempt. */
  readsAnything?: boolean
  /** A worker sends before its claim is written. */
  sendsBeforeClaim?: boolean
  /** The dispatcher takes back what another process has taken meanwhile. */
  withdrawsFromOthers?: boolean
  /** A lost lease is released, as if nothing had been sent. */
  forgetsSends?: boolean
  /** A second write of a move whose answer was lost counts again. */
  countsTwice?: boolean
  /** A receipt is answered as applied before it is written. */
  answersFirst?: boolean
  /** The outcome of a worker is written without a look at the attempt. */
  writesAnyAttempt?: boolean
  /** No dispatcher. */
  hasNoDispatcher?: boolean
}

export interface DeliveryOptions {
  needsReceipt: boolean
  tries: number
  mostAttempts: number
  /** Each may happen once. */
  faults: readonly ('crash' | 'declaredDead' | 'lostAnswer' | 'jobAgain' | 'operator')[]
  broken?: Broken
}

const steps = ['nothing', 'loaded', 'sent', 'answered', 'unclear'] as const
const outcomes = ['none', 'delivered', 'failed', 'refused'] as const

/** A process: what its worker does, and the claim that it has queued and not confirmed. */
interface Process {
  is: 'alive' | 'declaredDead' | 'dead'
  step: (typeof steps)[number]
  attempt: number
  outcome: (typeof outcomes)[number]
  queued: number
}

/** A move that is decided on, and maybe not written yet. */
type Decided = Omit<Move, 'taskId' | 'downstream'>

export interface DeliveryModelState {
  row: DeliveryRow
  processes: [Process, Process]
  dispatcher: Decided | null
  receipt: Decided | null
  operator: Decided | null
  /** Bits of attempts: whose request left, and whose job may be read. */
  sent: number
  jobs: number
  /** Faults that may still happen, as bits of `DeliveryOptions.faults`. */
  tokens: number
  /** The newest attempt that a worker has loaded. */
  loaded: number
  /** A receipt of this round was answered as applied; this round was HANDLED, FAILED; a move was counted. */
  applied: boolean
  handled: boolean
  failed: boolean
  counted: number
  /** The property that the last step broke. */
  wrong: string | null
}

const policy: Policy = { times: undefined, backoff: { kind: 'list', ms: [1] }, receiptTimeoutMs: 1 }
/** All times: a clock has ended at 0, and runs until 1. */
const now = 0
const ended = 0
const running = 1

const idle: Process = { is: 'alive', step: 'nothing', attempt: 0, outcome: 'none', queued: 0 }
const wrongs = [
  null,
  'I13: the claim is committed before the request leaves',
  'I14: attempts are loaded in rising order',
  'I16: a repeat has its reason',
  'I17: a worker that has lost its claim writes nothing',
  'I18: nothing is loaded after the end',
  'I24: a receipt that was answered as applied stays applied',
  'I26: a delivery is HANDLED once in a round',
  'I27: what has ended does not go back',
  'I32: the number of an attempt never falls, and a running lease is not touched',
  'I34: a delivery FAILED once in a round',
  'D8: a move is counted once',
  'I15: no more is sent than the limit, and two that were lost'
] as const
type Wrong = (typeof wrongs)[number]

export function deliveryModel(options: DeliveryOptions): Model<DeliveryModelState> {
  const { needsReceipt, tries, mostAttempts, faults, broken = {} } = options
  const applyMove = broken.apply ?? apply

  /** The state after a write. The guard may refuse it: then nothing has changed. */
  function write(
    state: DeliveryModelState,
    move: Decided,
    more: Partial<Written> = {}
  ): { next: DeliveryModelState; isMoved: boolean } {
    const before = state.row
    const row = applyMove(before, move, { now, ...more })
    if (!row) return { next: state, isMoved: false }
    const clock = row.nextActionAt === null ? null : row.nextActionAt > now ? running : ended
    const isAnew = row.round > before.round
    const isEnd = statusOf(row.state) !== 'SENDING'
    let wrong: Wrong = null
    if (row.attempt < before.attempt) wrong = wrongs[9]
    // A state that has ended is left by operators, and by a receipt of one that FAILED.
    const isOperator = isAnew || move.name === 'settle' || move.name === 'delete'
    if (statusOf(before.state) !== 'SENDING' && !isOperator && move.name !== 'receive') wrong = wrongs[8]
    if (before.state === 'HANDLED' && !isAnew) wrong = wrongs[7]
    if (row.state === 'HANDLED' && state.handled && !isAnew) wrong = wrongs[7]
    if (row.state === 'FAILED' && state.failed && !isAnew) wrong = wrongs[10]
    // What was sent and may have arrived is not released as if it had not.
    if (move.name === 'release' && (state.sent & bit(before.attempt)) !== 0 && spentOf(state) === 0)
      wrong = wrongs[3]
    if (state.applied && row.state !== 'HANDLED' && !isAnew) wrong = wrongs[6]
    return {
      isMoved: true,
      next: {
        ...state,
        row: { ...row, nextActionAt: clock },
        applied: isAnew ? false : state.applied,
        handled: isAnew ? false : state.handled || row.state === 'HANDLED',
        failed: isAnew ? false : state.failed || row.state === 'FAILED',
        counted: isEnd ? state.counted : 0,
        wrong
      }
    }
  }

  const initial: DeliveryModelState = {
    row: {
      state: 'WAITING',
      attempt: 0,
      triesLeft: tries,
      lost: 0,
      roundFrom: 1,
      round: 1,
      position: null,
      owner: null,
      nextActionAt: ended,
      deliverBefore: null,
      deliveredAt: null,
      handledAt: null,
      handledBy: null,
      reason: null
    },
    processes: [idle, idle],
    dispatcher: null,
    receipt: null,
    operator: null,
    sent: 0,
    jobs: 0,
    tokens: (1 << faults.length) - 1,
    loaded: 0,
    applied: false,
    handled: false,
    failed: false,
    counted: 0,
    wrong: null
  }

  /** The faults that have happened. */
  function spentOf({ tokens }: DeliveryModelState): number {
    return faults.filter((_, at) => (tokens & (1 << at)) === 0).length
  }
  const spend = (state: DeliveryModelState, fault: (typeof faults)[number]): number | undefined => {
    const token = 1 << faults.indexOf(fault)
    return faults.includes(fault) && (state.tokens & token) !== 0 ? state.tokens & ~token : undefined
  }
  const withProcess = (
    state: DeliveryModelState,
    at: 0 | 1,
    change: Partial<Process>
  ): DeliveryModelState => {
    const processes: [Process, Process] = [...state.processes]
    processes[at] = { ...processes[at], ...change }
    return { ...state, processes }
  }
  const triesOf = ({ triesLeft, lost }: DeliveryRow) => ({ triesLeft, lost, needsReceipt, retryTimes: tries })
  const moveFor = (row: DeliveryRow, event: DeliveryEvent): Decided => {
    const { move: name, ...more } = decide(event, triesOf(row), policy, 0.5)
    return { attempt: row.attempt, name, ...more }
  }

  function claims(state: DeliveryModelState, at: 0 | 1, to: Step): void {
    const { row } = state
    const { is, step } = state.processes[at]
    if (is !== 'alive' || row.state !== 'WAITING' || row.nextActionAt !== ended) return
    if (row.attempt >= mostAttempts) return
    const move = { name: 'claim', attempt: row.attempt } as const
    const { next } = write(state, move, { claimer: at + 1, leaseMs: 1 })
    const { attempt } = next.row
    const who = `process ${at + 1}`
    if (broken.sendsBeforeClaim && step === 'nothing')
      to(`${who} sends attempt ${attempt} before its claim`, { ...state, wrong: wrongs[1] })
    if (step === 'nothing') to(`${who} claims attempt ${attempt}, and begins it`, load(next, at, attempt))
    to(`${who} claims attempt ${attempt}, and queues it`, {
      ...withProcess(next, at, { queued: attempt }),
      jobs: next.jobs | bit(attempt)
    })
    const tokens = spend(state, 'lostAnswer')
    if (tokens !== undefined)
      to(`${who} claims attempt ${attempt}, and does not hear of it`, { ...next, tokens }, true)
  }

  /** It holds the attempt from now on. */
  function load(state: DeliveryModelState, at: 0 | 1, attempt: number): DeliveryModelState {
    const isOver = statusOf(state.row.state) !== 'SENDING'
    return {
      ...withProcess(state, at, { step: 'loaded', attempt, outcome: 'none' }),
      loaded: Math.max(state.loaded, attempt),
      wrong: isOver ? wrongs[5] : attempt < state.loaded ? wrongs[2] : state.wrong
    }
  }

  function works(state: DeliveryModelState, at: 0 | 1, to: Step): void {
    const process = state.processes[at]
    const { is, step, attempt, queued } = process
    const { row } = state
    const who = `process ${at + 1}`
    if (is === 'dead') return
    if (step === 'nothing')
      for (let job = 1; job <= row.attempt; job++) {
        if ((state.jobs & bit(job)) === 0) continue
        const isOurs = row.state === 'IN_FLIGHT' && row.attempt === job
        if (isOurs) {
          // Its own process does not withdraw what it has begun.
          const own = queued === job ? withProcess(state, at, { queued: 0 }) : state
          const taken = load({ ...own, row: { ...row, owner: at + 1 } }, at, job)
          to(`${who} reads attempt ${job} from the queue`, { ...taken, jobs: state.jobs & ~bit(job) })
          const tokens = spend(state, 'jobAgain')
          if (tokens !== undefined)
            to(`${who} reads attempt ${job}, and its job stays in the queue`, { ...taken, tokens }, true)
        } else if (broken.readsAnything) to(`${who} reads attempt ${job}`, load(state, at, job))
        else to(`the job of attempt ${job} is dropped`, { ...state, jobs: state.jobs & ~bit(job) })
      }
    // The queue did not answer: the claim is released, if nobody has taken it.
    if (queued > 0 && !(step !== 'nothing' && attempt === queued)) {
      const owner = broken.withdrawsFromOthers ? {} : { owner: at + 1 }
      const { next } = write(state, { name: 'release', attempt: queued, ...owner })
      to(`${who} withdraws attempt ${queued}`, withProcess(next, at, { queued: 0 }))
      to(`${who} hears that attempt ${queued} is queued`, withProcess(state, at, { queued: 0 }))
    }
    if (step === 'loaded') {
      const sent = state.sent | bit(attempt)
      // In this round, by all that was sent: the limit, the two losses that are free, and what faults add.
      const most = tries + 2 + spentOf(state)
      let inRound = 0
      for (let one = row.roundFrom; one <= attempt; one++) if ((sent & bit(one)) !== 0) inRound++
      const isTooMany = inRound > most
      to(`${who} sends attempt ${attempt}`, {
        ...withProcess(state, at, { step: 'sent' }),
        sent,
        wrong: attempt > row.attempt ? wrongs[1] : isTooMany ? wrongs[12] : null
      })
      const { next } = write(state, { name: 'release', attempt })
      to(`${who} releases attempt ${attempt}`, withProcess(next, at, { step: 'nothing', attempt: 0 }))
    }
    if (step === 'sent')
      for (const outcome of ['delivered', 'failed', 'refused'] as const)
        to(
          `attempt ${attempt} of ${who} is ${outcome}`,
          withProcess(state, at, { step: 'answered', outcome })
        )
    if (step === 'answered' || step === 'unclear') completes(state, at, to)
  }

  /** Writes the outcome of a worker. */
  function completes(state: DeliveryModelState, at: 0 | 1, to: Step): void {
    const { step, attempt, outcome } = state.processes[at]
    const { row } = state
    const event: DeliveryEvent =
      outcome === 'delivered'
        ? { kind: 'delivered' }
        : outcome === 'refused'
          ? { kind: 'refused', reason: '' }
          : { kind: 'failed', reason: '' }
    const decided = moveFor(row, event)
    const move: Decided = broken.writesAnyAttempt
      ? { ...decided, attempt: row.attempt }
      : { ...decided, attempt, ifStill: 'IN_FLIGHT' }
    const { next, isMoved } = write(state, move)
    // Its claim is gone when its lease was taken back, although the number of the attempt is still the same.
    const isAnother = isMoved && (row.attempt !== attempt || row.state !== 'IN_FLIGHT')
    const counts = isMoved || (broken.countsTwice === true && step === 'unclear')
    const after = {
      ...withProcess(next, at, { step: 'nothing', attempt: 0, outcome: 'none' }),
      counted: next.counted + (counts ? 1 : 0),
      wrong: isAnother ? wrongs[4] : next.wrong
    }
    const label = `process ${at + 1} writes that attempt ${attempt} is ${outcome}${isMoved ? '' : ': too late'}`
    to(label, after.counted > 1 ? { ...after, wrong: wrongs[11] } : after)
    const tokens = spend(state, 'lostAnswer')
    if (tokens !== undefined && isMoved && step === 'answered')
      to(
        `${label}, and does not hear of it`,
        {
          ...withProcess(next, at, { step: 'unclear' }),
          counted: broken.countsTwice ? next.counted + 1 : next.counted,
          tokens
        },
        true
      )
  }

  function dispatches(state: DeliveryModelState, to: Step): void {
    const { row, dispatcher } = state
    if (broken.hasNoDispatcher) return
    const phase = phaseOf(row.state)
    if (dispatcher) {
      const { next } = write(state, dispatcher)
      // Without a token of a death, only a clock that has ended lets it take a claim back.
      const isLive = next.row !== row && dispatcher.overdue === true && row.nextActionAt !== ended
      const after = { ...next, dispatcher: null, wrong: isLive ? wrongs[9] : next.wrong }
      to(`the dispatcher writes ${dispatcher.name} of attempt ${dispatcher.attempt}`, after)
      return
    }
    if (phase !== 'IN_FLIGHT' && phase !== 'AWAITING_RECEIPT') return
    const event: DeliveryEvent =
      phase === 'IN_FLIGHT'
        ? { kind: 'lost', mayHaveBeenSent: broken.forgetsSends !== true }
        : { kind: 'no_receipt' }
    const move = { ...moveFor(row, event), ifStill: phase }
    if (row.nextActionAt === ended)
      to(`the dispatcher sees attempt ${row.attempt}, whose clock has ended`, {
        ...state,
        dispatcher: { ...move, overdue: true }
      })
    const owner = row.owner ?? 0
    const holder = owner === 1 || owner === 2 ? state.processes[owner - 1] : undefined
    if (phase === 'IN_FLIGHT' && holder && holder.is !== 'alive')
      to(`the dispatcher sees attempt ${row.attempt} of the dead process ${owner}`, {
        ...state,
        dispatcher: { ...move, owner }
      })
  }

  function receives(state: DeliveryModelState, to: Step): void {
    const { row, receipt } = state
    if (receipt) {
      const { next, isMoved } = write(state, receipt, { hasReceipt: true })
      const isHandled = isMoved && receipt.name === 'receive'
      const isOfEarlierRound = isMoved && receipt.attempt < row.roundFrom
      const label = `the receipt of attempt ${receipt.attempt} is written${isMoved ? '' : ': too late'}`
      const wrong = isOfEarlierRound ? wrongs[8] : next.wrong
      to(label, { ...next, receipt: null, applied: next.applied || isHandled, wrong })
      const tokens = spend(state, 'lostAnswer')
      if (tokens !== undefined && isMoved)
        to(`${label}, and its process does not hear of it`, { ...next, receipt, tokens, wrong }, true)
      return
    }
    for (let attempt = 1; attempt <= mostAttempts; attempt++)
      if ((state.sent & bit(attempt)) !== 0)
        for (const result of receiptResults) {
          const found = {
            ...triesOf(row),
            status: statusOf(row.state),
            phase: phaseOf(row.state),
            attempt: row.attempt,
            roundFrom: row.roundFrom,
            deliveredMs: row.deliveredAt === null ? null : 0
          }
          const move = moveOnReceipt(result, attempt, found, () => policy, 0.5)
          if (!move) continue
          const label = `a receipt says ${result} of attempt ${attempt}`
          const next = { ...state, receipt: { ...move, attempt } }
          to(label, broken.answersFirst && result === 'HANDLED' ? { ...next, applied: true } : next)
        }
  }

  function operates(state: DeliveryModelState, to: Step): void {
    const { row, operator } = state
    if (operator) {
      const { next } = write(state, operator)
      to(`the operator writes ${operator.name}`, { ...next, operator: null })
      return
    }
    const tokens = spend(state, 'operator')
    if (tokens === undefined) return
    const status = statusOf(row.state)
    const { attempt } = row
    const wish = (move: Decided): void =>
      to(`an operator asks for ${move.name}`, { ...state, tokens, operator: move }, true)
    if (status === 'FAILED') wish({ name: 'redeliver', attempt, retryTimes: 1 })
    if (status === 'HANDLED') wish({ name: 'repeat', attempt, retryTimes: 1 })
    if (status === 'SENDING' || status === 'FAILED') {
      wish({ name: 'settle', attempt, handledBy: 'operator', ifStill: status })
      wish({ name: 'delete', attempt, reason: 'DELETED', ifStill: status })
    }
    if (row.state === 'WAITING' && row.nextActionAt === running) wish({ name: 'push', attempt })
  }

  function fails(state: DeliveryModelState, to: Step): void {
    const crash = spend(state, 'crash')
    const death = spend(state, 'declaredDead')
    for (const at of [0, 1] as const) {
      const { is } = state.processes[at]
      if (crash !== undefined && is !== 'dead')
        to(
          `process ${at + 1} is killed`,
          { ...withProcess(state, at, { ...idle, is: 'dead' }), tokens: crash },
          true
        )
      if (death !== undefined && is === 'alive')
        to(
          `process ${at + 1} is declared dead`,
          { ...withProcess(state, at, { is: 'declaredDead' }), tokens: death },
          true
        )
    }
  }

  return {
    name: [
      `one delivery${needsReceipt ? ' with a receipt' : ''}`,
      `${tries} tries`,
      `${mostAttempts} attempts`,
      ...faults
    ].join(', '),
    size: packedSize,
    initial,
    pack,
    unpack,
    violation: state => state.wrong ?? undefined,
    hasEnded: ({ row }) => statusOf(row.state) !== 'SENDING' || row.attempt >= mostAttempts,
    steps(state, to) {
      for (const at of [0, 1] as const) {
        claims(state, at, to)
        works(state, at, to)
      }
      dispatches(state, to)
      receives(state, to)
      operates(state, to)
      if (state.row.nextActionAt === running)
        to('the clock ends', { ...state, row: { ...state.row, nextActionAt: ended } })
      fails(state, to)
    }
  }
}

type Step = (label: string, next: DeliveryModelState, isFault?: boolean) => void

const bit = (attempt: number): number => (attempt > 0 ? 1 << (attempt - 1) : 0)

// One byte for each number below: simple, and small enough.
const packedSize = 42
const stills = [undefined, 'SENDING', 'FAILED', ...phases] as const

function packDecided(move: Decided | null, into: Uint8Array, at: number): void {
  into[at] = move ? moveNames.indexOf(move.name) + 1 : 0
  into[at + 1] = move?.attempt ?? 0
  into[at + 2] = stills.indexOf(move?.ifStill)
  into[at + 3] = (move?.overdue ? 1 : 0) | (move?.afterMs ? 2 : 0) | ((move?.owner ?? 0) << 2)
}

function unpackDecided(from: Uint8Array, at: number): Decided | null {
  const name = moveNames[(from[at] ?? 0) - 1]
  if (name === undefined) return null
  const ifStill = stills[from[at + 2] ?? 0]
  const flags = from[at + 3] ?? 0
  return {
    name,
    attempt: from[at + 1] ?? 0,
    ...(ifStill === undefined ? {} : { ifStill }),
    ...(flags & 1 ? { overdue: true } : {}),
    ...(flags & 2 ? { afterMs: 1 } : {}),
    ...(flags >> 2 ? { owner: flags >> 2 } : {}),
    ...(name === 'redeliver' || name === 'repeat' ? { retryTimes: 1 } : {})
  }
}

function pack(state: DeliveryModelState, into: Uint8Array): void {
  const { row } = state
  into[0] = states.indexOf(row.state)
  into[1] = row.attempt
  into[2] = row.triesLeft
  into[3] = row.lost
  into[4] = row.roundFrom
  into[5] = row.round
  into[6] = row.owner ?? 0
  into[7] = row.nextActionAt === null ? 2 : row.nextActionAt
  into[8] = row.deliveredAt === null ? 0 : 1
  for (const [n, process] of state.processes.entries()) {
    const at = 9 + n * 5
    into[at] = process.is === 'alive' ? 0 : process.is === 'dead' ? 1 : 2
    into[at + 1] = steps.indexOf(process.step)
    into[at + 2] = process.attempt
    into[at + 3] = outcomes.indexOf(process.outcome)
    into[at + 4] = process.queued
  }
  packDecided(state.dispatcher, into, 19)
  packDecided(state.receipt, into, 23)
  packDecided(state.operator, into, 27)
  into[31] = state.sent
  into[32] = state.jobs
  into[33] = state.tokens
  into[34] = state.loaded
  into[35] = (state.applied ? 1 : 0) | (state.handled ? 2 : 0) | (state.failed ? 4 : 0)
  into[36] = state.counted
  into[37] = wrongs.indexOf(state.wrong as Wrong)
  into.fill(0, 38)
}

function unpack(from: Uint8Array): DeliveryModelState {
  const at = (index: number): number => from[index] ?? 0
  const process = (n: number): Process => ({
    is: (['alive', 'dead', 'declaredDead'] as const)[at(9 + n * 5)] ?? 'alive',
    step: steps[at(10 + n * 5)] ?? 'nothing',
    attempt: at(11 + n * 5),
    outcome: outcomes[at(12 + n * 5)] ?? 'none',
    queued: at(13 + n * 5)
  })
  return {
    row: {
      state: states[at(0)] ?? 'WAITING',
      attempt: at(1),
      triesLeft: at(2),
      lost: at(3),
      roundFrom: at(4),
      round: at(5),
      owner: at(6) || null,
      nextActionAt: at(7) === 2 ? null : at(7),
      deliveredAt: at(8) ? 0 : null,
      position: null,
      deliverBefore: null,
      handledAt: null,
      handledBy: null,
      reason: null
    },
    processes: [process(0), process(1)],
    dispatcher: unpackDecided(from, 19),
    receipt: unpackDecided(from, 23),
    operator: unpackDecided(from, 27),
    sent: at(31),
    jobs: at(32),
    tokens: at(33),
    loaded: at(34),
    applied: (at(35) & 1) !== 0,
    handled: (at(35) & 2) !== 0,
    failed: (at(35) & 4) !== 0,
    counted: at(36),
    wrong: wrongs[at(37)] ?? null
  }
}
