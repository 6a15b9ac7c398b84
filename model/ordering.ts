// Three deliveries of one orderingKey. The second one also waits, by `after`, for a task without a key. What a statement reads from several
// rows, it reads at one moment, and writes after a lock at a later one: accept, promote (migration 0012), closeDependencies. What happens to
// one delivery alone is in model/delivery.ts.
import { moves } from '../src/domain/transitions.ts'
import type { Model } from './explore.ts'

const phases = ['none', 'BLOCKED', 'WAITING', 'IN_FLIGHT', 'HANDLED', 'FAILED', 'DELETED'] as const
type Phase = (typeof phases)[number]

/** `isOut`: its position is below zero. `wasSent`: in this round. */
interface InOrder {
  phase: Phase
  isOut: boolean
  wasSent: boolean
  hasRetried: boolean
}

/** The transaction of `promote`, while it holds the lock of the key. `saw`: what its last statement reads. */
interface Promoting {
  /** It has deleted the rows of `promotion` that it saw: if it is killed, they are back. */
  deletes: boolean
  /** Bits of those that FAILED and that it passes: their rows are locked until it ends. */
  passes: number
  saw: { at: number; phase: Phase; waits: boolean } | null
}

export interface OrderingState {
  all: readonly InOrder[]
  /** The place of the head in `all`; -1: no head. */
  head: number
  isHeld: boolean
  /** There is a row in `promotion`. */
  hasPromotion: boolean
  promoting: Promoting | null
  prerequisite: 'SENDING' | 'HANDLED' | 'FAILED' | 'DELETED'
  /** The row in `dependency` is open. */
  waits: boolean
  /** What a look at the dependents has decided. */
  decided: 'nothing' | 'close' | 'fail'
  crashes: number
  acts: number
  wrong: string | null
}

export interface OrderingBroken {
  /** Rows of `promotion` are deleted after the look: also one that was left meanwhile. */
  deletesLate?: boolean
  /** The rows of `promotion` are gone before the key has been looked at. */
  forgetsAtCrash?: boolean
  /** It does not look again at the row that it locks. */
  trustsLook?: boolean
  /** A position is taken without the lock of the key. */
  acceptsUnlocked?: boolean
  /** The next one is let go when its head is sent, and not when it has ended. */
  promotesAtSend?: boolean
  /** It does not ask whether the task still waits for others. */
  ignoresAfter?: boolean
}

export interface OrderingOptions {
  /** What FAILED does not hold the key. */
  skips: boolean
  /** How often a process is killed, and how often an operator acts. */
  crashes: number
  acts: number
  broken?: OrderingBroken
}

const wrongs = [
  null,
  'O1: at most one of a key may run',
  'O2: first sends are in the order of the positions',
  'O4: a task is not sent before what it waits for is HANDLED',
  'I27: what has ended does not go back'
] as const

const fresh: InOrder = { phase: 'none', isOut: false, wasSent: false, hasRetried: false }
const isOpen = ({ phase }: InOrder): boolean =>
  phase === 'BLOCKED' || phase === 'WAITING' || phase === 'IN_FLIGHT'
const isActive = (one: InOrder): boolean =>
  !one.isOut && (one.phase === 'WAITING' || one.phase === 'IN_FLIGHT')
const isLocked = ({ promoting }: OrderingState, at: number): boolean =>
  promoting !== null && (promoting.passes & (1 << at)) !== 0
/** As SQL looks for a head: SENDING or FAILED, with a position that counts. */
const mayBeHead = (one: InOrder): boolean => !one.isOut && (isOpen(one) || one.phase === 'FAILED')

export function orderingModel({ skips, crashes, acts, broken = {} }: OrderingOptions): Model<OrderingState> {
  type Step = (label: string, next: OrderingState, isFault?: boolean) => void

  const change = (state: OrderingState, at: number, to: Partial<InOrder>): OrderingState => {
    const all = state.all.map((one, n) => (n === at ? { ...one, ...to } : one))
    const isTwo = all.filter(isActive).length > 1
    return { ...state, all, wrong: isTwo ? wrongs[1] : state.wrong }
  }
  /** A trigger leaves a row for each end of one that counts. */
  const end = (state: OrderingState, at: number, phase: Phase): OrderingState => ({
    ...change(state, at, { phase }),
    hasPromotion: state.hasPromotion || state.all[at]?.isOut === false
  })
  function accepts(state: OrderingState, to: Step): void {
    const at = state.all.findIndex(({ phase }) => phase === 'none')
    if (at < 0 || (state.promoting && !broken.acceptsUnlocked)) return
    const head = state.head < 0 ? at : state.head
    const isBlocked = at !== head || at === 1
    const next = change(state, at, { phase: isBlocked ? 'BLOCKED' : 'WAITING' })
    to(`${at + 1} is accepted`, { ...next, head, waits: state.waits || at === 1 })
  }

  /** The transaction of promote, statement by statement. */
  function promotes(state: OrderingState, to: Step): void {
    const { promoting, all } = state
    if (!promoting) {
      // By a hint or by the sweep. Without a row there is nothing to do.
      if (state.hasPromotion)
        to('a process locks the key', {
          ...state,
          hasPromotion: broken.forgetsAtCrash ? false : state.hasPromotion,
          promoting: { deletes: !broken.deletesLate, passes: 0, saw: null }
        })
      return
    }
    // Nothing of its transaction stays.
    if (state.crashes > 0) {
      const isBack = promoting.saw !== null && promoting.deletes && !broken.forgetsAtCrash
      to(
        'the process that promotes is killed',
        { ...state, promoting: null, hasPromotion: state.hasPromotion || isBack, crashes: state.crashes - 1 },
        true
      )
    }
    if (!promoting.saw) {
      // What FAILED is passed: that it is so is certain under the lock of its row.
      let passes = 0
      if (skips)
        for (const [at, one] of all.entries()) {
          if (!mayBeHead(one)) continue
          if (one.phase !== 'FAILED') break
          passes |= 1 << at
        }
      const at = all.findIndex(
        (one, n) => n >= Math.max(0, state.head) && mayBeHead(one) && (passes & (1 << n)) === 0
      )
      const { phase = 'none' } = all[at] ?? {}
      // Rows that are left from now on stay: the deletion was before this look.
      to('it looks for the head', {
        ...state,
        hasPromotion: promoting.deletes ? false : state.hasPromotion,
        promoting: { ...promoting, passes, saw: { at, phase, waits: at === 1 && state.waits } }
      })
      return
    }
    const { at, phase, waits } = promoting.saw
    const isFailed = phase === 'FAILED'
    const passed = all.map((one, n) => ((promoting.passes & (1 << n)) === 0 ? one : { ...one, isOut: true }))
    let next: OrderingState = {
      ...state,
      all: passed,
      head: at,
      isHeld: isFailed && !skips,
      promoting: null,
      hasPromotion: broken.deletesLate ? false : state.hasPromotion || (isFailed && skips)
    }
    const mayGo = phase === 'BLOCKED' && (!waits || broken.ignoresAfter === true)
    // It looks again at the row that it has locked.
    const isStill = all[at]?.phase === 'BLOCKED' || broken.trustsLook === true
    if (mayGo && isStill) {
      const isOver = all[at]?.phase !== 'BLOCKED'
      next = change(next, at, { phase: moves.unblock.to })
      if (isOver) next = { ...next, wrong: wrongs[4] }
    }
    to(`it writes that ${at + 1 || 'none'} is the head`, next)
  }

  function delivers(state: OrderingState, to: Step): void {
    for (const [at, one] of state.all.entries()) {
      if (isLocked(state, at)) continue
      const name = `${at + 1}`
      if (one.phase === 'WAITING') to(`${name} is claimed`, change(state, at, { phase: moves.claim.to }))
      if (one.phase !== 'IN_FLIGHT') continue
      if (!one.wasSent) {
        const isEarly = !one.isOut && state.all.slice(0, at).some(before => mayBeHead(before))
        // An operator may force what waited for a task that was deleted.
        const isUnmet = at === 1 && (state.prerequisite === 'SENDING' || state.prerequisite === 'FAILED')
        const next = change(state, at, { wasSent: true })
        const sent = broken.promotesAtSend ? { ...next, hasPromotion: true, head: at + 1 } : next
        to(`${name} is sent`, { ...sent, wrong: isUnmet ? wrongs[3] : isEarly ? wrongs[2] : sent.wrong })
        continue
      }
      to(`${name} is HANDLED`, end(state, at, moves.handled.to))
      to(`${name} FAILED`, end(state, at, moves.fail.to))
      if (!one.hasRetried)
        to(`${name} is tried again`, change(state, at, { phase: moves.retry.to, hasRetried: true }))
    }
    // A late receipt.
    for (const [at, one] of state.all.entries())
      if (one.phase === 'FAILED' && one.wasSent && !isLocked(state, at))
        to(`${at + 1} gets its receipt`, end(state, at, moves.receive.to), true)
  }

  function waitsForOthers(state: OrderingState, to: Step): void {
    const { prerequisite, waits, decided } = state
    if (prerequisite === 'SENDING')
      for (const is of ['HANDLED', 'FAILED', 'DELETED'] as const)
        to(`the prerequisite is ${is}`, { ...state, prerequisite: is }, is !== 'HANDLED')
    if (prerequisite === 'FAILED')
      to('the prerequisite gets its receipt', { ...state, prerequisite: 'HANDLED' }, true)
    if (decided === 'nothing' && waits && (prerequisite === 'HANDLED' || prerequisite === 'DELETED'))
      to('a process sees what it waits for', {
        ...state,
        decided: prerequisite === 'HANDLED' ? 'close' : 'fail'
      })
    if (decided === 'nothing') return
    if (state.crashes > 0)
      to(
        'the process that saw it is killed',
        { ...state, decided: 'nothing', crashes: state.crashes - 1 },
        true
      )
    if (decided === 'fail' && state.all[1]?.phase === 'BLOCKED')
      to('2 FAILED, since its prerequisite was deleted', {
        ...end(state, 1, moves.fail.to),
        decided: 'close'
      })
    else {
      const [, second] = state.all
      const leaves = second !== undefined && !second.isOut && (isOpen(second) || second.phase === 'FAILED')
      to('the wait is closed', {
        ...state,
        waits: false,
        decided: 'nothing',
        hasPromotion: state.hasPromotion || leaves
      })
    }
  }

  function operates(state: OrderingState, to: Step): void {
    if (state.acts === 0) return
    for (const [at, one] of state.all.entries()) {
      if (isLocked(state, at)) continue
      const name = `${at + 1}`
      const act = (label: string, next: OrderingState): void =>
        to(label, { ...next, acts: state.acts - 1 }, true)
      if (one.phase === 'FAILED') {
        const anew = { wasSent: false, hasRetried: true }
        if (one.isOut)
          act(`${name} is redelivered`, change(state, at, { ...anew, phase: moves.redeliver.to }))
        else {
          const next = change(state, at, { ...anew, phase: moves.requeue.to })
          act(`${name} is redelivered in its place`, { ...next, hasPromotion: true })
        }
        if (state.head === at && !one.isOut && !state.promoting) {
          const passed = change(state, at, { isOut: true })
          const head = passed.all.findIndex((each, n) => n >= at && mayBeHead(each))
          act(`the key is released from ${name}`, { ...passed, head, isHeld: false, hasPromotion: true })
        }
      }
      if (one.phase === 'HANDLED')
        act(`${name} is repeated`, change(state, at, { phase: moves.repeat.to, isOut: true, wasSent: false }))
      if (isOpen(one) || one.phase === 'FAILED') act(`${name} is deleted`, end(state, at, moves.delete.to))
    }
  }

  return {
    name: `${skips ? 'a key that goes on when one FAILED' : 'a key that one FAILED holds'}, ${crashes} crashes, ${acts} acts of an operator`,
    size: 12,
    initial: {
      all: [fresh, fresh, fresh],
      head: -1,
      isHeld: false,
      hasPromotion: false,
      promoting: null,
      prerequisite: 'SENDING',
      waits: false,
      decided: 'nothing',
      crashes,
      acts,
      wrong: null
    },
    pack,
    unpack,
    violation: ({ wrong }) => wrong ?? undefined,
    hasEnded({ all, head, isHeld, prerequisite, waits }) {
      if (all.some(({ phase }) => phase === 'none')) return false
      if (!all.some(isOpen)) return true
      // An alarm says that somebody must act.
      if (isHeld && all[head]?.phase === 'FAILED') return true
      return waits && prerequisite === 'FAILED' && head === 1
    },
    steps(state, to) {
      accepts(state, to)
      promotes(state, to)
      delivers(state, to)
      waitsForOthers(state, to)
      operates(state, to)
    }
  }
}

const prerequisites = ['SENDING', 'HANDLED', 'FAILED', 'DELETED'] as const
const decisions = ['nothing', 'close', 'fail'] as const
const bits = (...all: boolean[]): number => all.reduce((sum, one, at) => sum | (one ? 1 << at : 0), 0)

function pack(state: OrderingState, into: Uint8Array): void {
  for (const [at, one] of state.all.entries())
    into[at] = phases.indexOf(one.phase) | (bits(one.isOut, one.wasSent, one.hasRetried) << 4)
  into[3] = state.head + 1
  into[4] = bits(
    state.isHeld,
    state.hasPromotion,
    state.waits,
    state.promoting !== null,
    state.promoting?.deletes === true
  )
  const saw = state.promoting?.saw
  into[5] = saw ? saw.at + 2 : 0
  into[6] = saw ? phases.indexOf(saw.phase) | (bits(saw.waits) << 4) : 0
  into[7] = prerequisites.indexOf(state.prerequisite)
  into[8] = decisions.indexOf(state.decided)
  into[9] = state.crashes | (state.acts << 4)
  into[10] = wrongs.findIndex(one => one === state.wrong)
  into[11] = state.promoting?.passes ?? 0
}

function unpack(from: Uint8Array): OrderingState {
  const at = (index: number): number => from[index] ?? 0
  const has = (value: number, bit: number): boolean => (value & (1 << bit)) !== 0
  const saw =
    at(5) === 0 ? null : { at: at(5) - 2, phase: phases[at(6) & 15] ?? 'none', waits: has(at(6), 4) }
  return {
    all: [0, 1, 2].map(n => ({
      phase: phases[at(n) & 15] ?? 'none',
      isOut: has(at(n), 4),
      wasSent: has(at(n), 5),
      hasRetried: has(at(n), 6)
    })),
    head: at(3) - 1,
    isHeld: has(at(4), 0),
    hasPromotion: has(at(4), 1),
    waits: has(at(4), 2),
    promoting: has(at(4), 3) ? { deletes: has(at(4), 4), passes: at(11), saw } : null,
    prerequisite: prerequisites[at(7)] ?? 'SENDING',
    decided: decisions[at(8)] ?? 'nothing',
    crashes: at(9) & 15,
    acts: at(9) >> 4,
    wrong: wrongs[at(10)] ?? null
  }
}
