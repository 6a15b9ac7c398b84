// A half message with the barrier: its producer, whose transaction may be slow or die, the service, which asks, and an operator. The barrier
// is one row in the producer's database. Who inserts it first has decided: the work with COMMITTED, or a check with ROLLED_BACK.
import type { Model } from './explore.ts'

const transactions = ['none', 'open', 'committed', 'rolledBack'] as const
const barriers = ['none', 'locked', 'COMMITTED', 'ROLLED_BACK'] as const
const messages = ['none', 'PREPARED', 'COMMITTED', 'ROLLED_BACK'] as const
type Word = 'COMMITTED' | 'ROLLED_BACK'

export interface HalfState {
  message: (typeof messages)[number]
  work: (typeof transactions)[number]
  /** `locked`: inserted by the open transaction. */
  barrier: (typeof barriers)[number]
  isProducerDead: boolean
  /** What the producer calls after its work, and has not been answered. */
  word: Word | null
  /** The answer of a check that is on its way. */
  answer: Word | 'UNKNOWN' | null
  /** A check has been answered with ROLLED_BACK. */
  saidRolledBack: boolean
  /** How often it has ended. */
  ends: number
  wrong: string | null
}

export interface HalfBroken {
  /** A check that finds no row answers ROLLED_BACK without inserting one. */
  hasNoBarrier?: boolean
  /** The work writes its barrier row in a transaction of its own, before it. */
  barrierOutside?: boolean
  /** UNKNOWN commits. */
  guesses?: boolean
  /** An end does not look whether it has ended. */
  endsTwice?: boolean
}

const wrongs = [
  null,
  'P3: a half message ends by a word of its producer, once',
  'P4: work whose check was answered with ROLLED_BACK does not commit',
  'P3: what is delivered was done, and what was done is delivered'
] as const

export function halfModel(broken: HalfBroken = {}): Model<HalfState> {
  function end(state: HalfState, word: Word): HalfState {
    if (state.message !== 'PREPARED' && !broken.endsTwice) return state
    const ends = state.ends + 1
    const isTrue = (word === 'COMMITTED') === (state.work === 'committed')
    return { ...state, message: word, ends, wrong: ends > 1 ? wrongs[1] : isTrue ? state.wrong : wrongs[3] }
  }
  type Step = (label: string, next: HalfState, isFault?: boolean) => void

  function produces(state: HalfState, to: Step): void {
    const { message, work, barrier, isProducerDead, word } = state
    if (isProducerDead) return
    if (message === 'none') to('the producer prepares it', { ...state, message: 'PREPARED' })
    if (message !== 'none' && work === 'none') {
      to('the producer opens its transaction', { ...state, work: 'open' })
      if (broken.barrierOutside && barrier === 'none')
        to('the producer writes the barrier', { ...state, barrier: 'COMMITTED' })
    }
    if (work === 'open') {
      if (barrier === 'none' && !broken.barrierOutside)
        to('the work inserts the barrier row', { ...state, barrier: 'locked' })
      // With a row of a check there, the insert fails and so does the work.
      if (barrier === 'ROLLED_BACK') to('the work meets the row of a check', { ...state, work: 'rolledBack' })
      const mayCommit =
        barrier === 'locked' ||
        broken.barrierOutside === true ||
        (broken.hasNoBarrier === true && barrier === 'none')
      if (mayCommit)
        to('the work commits', {
          ...state,
          work: 'committed',
          barrier: barrier === 'locked' ? 'COMMITTED' : barrier,
          word: 'COMMITTED',
          wrong: state.saidRolledBack ? wrongs[2] : state.wrong
        })
      to(
        'the work fails',
        {
          ...state,
          work: 'rolledBack',
          barrier: barrier === 'locked' ? 'none' : barrier,
          word: 'ROLLED_BACK'
        },
        true
      )
    }
    if (word !== null) to(`the producer says ${word}`, { ...end(state, word), word: null })
    to(
      'the producer is killed',
      {
        ...state,
        isProducerDead: true,
        word: null,
        work: work === 'committed' ? work : 'rolledBack',
        barrier: barrier === 'locked' ? 'none' : barrier
      },
      true
    )
  }

  function checks(state: HalfState, to: Step): void {
    const { message, barrier, answer } = state
    if (answer !== null) {
      if (answer !== 'UNKNOWN') to(`the check says ${answer}`, { ...end(state, answer), answer: null })
      else if (broken.guesses)
        to('nobody knows: it is committed', { ...end(state, 'COMMITTED'), answer: null })
      else to('nobody knows: it stays', { ...state, answer: null })
      return
    }
    if (message !== 'PREPARED') return
    // Another process of the producer answers. It waits for the row of an open transaction, or gives up.
    if (barrier === 'COMMITTED') to('a check finds the row of the work', { ...state, answer: 'COMMITTED' })
    if (barrier === 'locked') to('a check meets an open transaction', { ...state, answer: 'UNKNOWN' })
    if (barrier === 'none' || barrier === 'ROLLED_BACK')
      to('a check inserts its row', {
        ...state,
        barrier: broken.hasNoBarrier ? barrier : 'ROLLED_BACK',
        answer: 'ROLLED_BACK',
        saidRolledBack: true
      })
  }

  return {
    name: 'a half message',
    size: 4,
    initial: {
      message: 'none',
      work: 'none',
      barrier: 'none',
      isProducerDead: false,
      word: null,
      answer: null,
      saidRolledBack: false,
      ends: 0,
      wrong: null
    },
    pack(state, into) {
      into[0] =
        messages.indexOf(state.message) |
        (transactions.indexOf(state.work) << 2) |
        (barriers.indexOf(state.barrier) << 4)
      into[1] = words.indexOf(state.word) | (words.indexOf(state.answer) << 2) | (state.ends << 4)
      into[2] = (state.isProducerDead ? 1 : 0) | (state.saidRolledBack ? 2 : 0)
      into[3] = wrongs.findIndex(one => one === state.wrong)
    },
    unpack(from) {
      const [first = 0, second = 0, third = 0, fourth = 0] = from
      const word = words[second & 3]
      return {
        message: messages[first & 3] ?? 'none',
        work: transactions[(first >> 2) & 3] ?? 'none',
        barrier: barriers[(first >> 4) & 3] ?? 'none',
        word: word === 'UNKNOWN' || word === undefined ? null : word,
        answer: words[(second >> 2) & 3] ?? null,
        ends: second >> 4,
        isProducerDead: (third & 1) !== 0,
        saidRolledBack: (third & 2) !== 0,
        wrong: wrongs[fourth] ?? null
      }
    },
    violation: ({ wrong }) => wrong ?? undefined,
    hasEnded: ({ message, isProducerDead }) =>
      message === 'COMMITTED' || message === 'ROLLED_BACK' || (message === 'none' && isProducerDead),
    steps(state, to) {
      produces(state, to)
      checks(state, to)
    }
  }
}

const words = [null, 'COMMITTED', 'ROLLED_BACK', 'UNKNOWN'] as const
