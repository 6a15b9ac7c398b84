import { readFileSync } from 'node:fs'
import fc from 'fast-check'
import t from 'tap'
import {
  decide,
  effectiveRetryTimes,
  type DeliveryEvent,
  type Policy
} from '../../src/domain/retry-policy.ts'
import {
  effects,
  moveNames,
  moves,
  phaseOf,
  stateBits,
  states,
  statusOf,
  type MoveName,
  type State
} from '../../src/domain/transitions.ts'
import { printStates } from '../../src/domain/states-page.ts'
import { statusNumber } from '../../src/domain/types.ts'
import { apply, type DeliveryState } from '../support/model.ts'

// For each move, its states before and after. Written by hand from the drawing in the design, not from the table.
const drawn: { [move in MoveName]: { [from in State]?: State } } = {
  claim: { WAITING: 'IN_FLIGHT' },
  unblock: { BLOCKED: 'WAITING' },
  promote: { BLOCKED: 'IN_FLIGHT' },
  release: { IN_FLIGHT: 'WAITING' },
  lose: { IN_FLIGHT: 'WAITING' },
  sent: { IN_FLIGHT: 'AWAITING_RECEIPT' },
  handled: { IN_FLIGHT: 'HANDLED' },
  probed: { IN_FLIGHT: 'HANDLED' },
  retry: { IN_FLIGHT: 'WAITING', AWAITING_RECEIPT: 'WAITING' },
  fail: { IN_FLIGHT: 'FAILED', AWAITING_RECEIPT: 'FAILED', WAITING: 'FAILED', BLOCKED: 'FAILED' },
  skip: { IN_FLIGHT: 'DELETED' },
  receive: {
    WAITING: 'HANDLED',
    IN_FLIGHT: 'HANDLED',
    AWAITING_RECEIPT: 'HANDLED',
    BLOCKED: 'HANDLED',
    FAILED: 'HANDLED'
  },
  extend: { AWAITING_RECEIPT: 'AWAITING_RECEIPT', WAITING: 'AWAITING_RECEIPT' },
  redeliver: { FAILED: 'WAITING' },
  requeue: { FAILED: 'BLOCKED' },
  repeat: { HANDLED: 'WAITING' },
  push: { WAITING: 'WAITING' },
  settle: {
    WAITING: 'HANDLED',
    IN_FLIGHT: 'HANDLED',
    AWAITING_RECEIPT: 'HANDLED',
    BLOCKED: 'HANDLED',
    FAILED: 'HANDLED'
  },
  delete: {
    WAITING: 'DELETED',
    IN_FLIGHT: 'DELETED',
    AWAITING_RECEIPT: 'DELETED',
    BLOCKED: 'DELETED',
    FAILED: 'DELETED'
  }
}

const at = (state: State, more: Partial<DeliveryState> = {}): DeliveryState => ({
  state,
  attempt: 5,
  triesLeft: 3,
  lost: 1,
  roundFrom: 3,
  ...more
})

t.test('from every state each move leads where the picture says, or nowhere', async t => {
  t.same(moveNames.toSorted(), Object.keys(drawn).toSorted())
  for (const name of moveNames) {
    for (const state of states) {
      const after = apply(at(state), { name, attempt: 5 })
      t.equal(after?.state ?? null, drawn[name][state] ?? null, `${name} from ${state}`)
    }
  }
})

t.test(
  'an attempt number that is not the present one moves nothing, but a receipt of this round does',
  async t => {
    for (const name of moveNames) {
      for (const state of states) {
        for (const attempt of [2, 3, 4, 6]) {
          const after = apply(at(state), { name, attempt })
          const fits = name === 'receive' && (attempt === 3 || attempt === 4)
          t.equal(
            after?.state ?? null,
            fits ? (drawn[name][state] ?? null) : null,
            `${name} from ${state}, ${attempt}`
          )
        }
      }
    }
  }
)

t.test(
  'only a claim raises the attempt and takes a try; release and lose give it back; a new round starts anew',
  async t => {
    const change = (name: MoveName, from: State) => apply(at(from), { name, attempt: 5, retryTimes: 7 })
    t.match(change('claim', 'WAITING'), { attempt: 6, triesLeft: 2, lost: 1, roundFrom: 3 })
    t.match(change('release', 'IN_FLIGHT'), { attempt: 5, triesLeft: 4, lost: 1, roundFrom: 3 })
    t.match(change('lose', 'IN_FLIGHT'), { attempt: 5, triesLeft: 4, lost: 2, roundFrom: 3 })
    t.match(change('redeliver', 'FAILED'), { attempt: 5, triesLeft: 7, lost: 0, roundFrom: 6 })
    t.match(change('repeat', 'HANDLED'), { attempt: 5, triesLeft: 7, lost: 0, roundFrom: 6 })
    for (const name of [
      'unblock',
      'sent',
      'handled',
      'retry',
      'fail',
      'skip',
      'receive',
      'extend',
      'delete'
    ] as const) {
      const from = moves[name].from[0]
      t.match(change(name, from), { attempt: 5, triesLeft: 3, lost: 1, roundFrom: 3 }, name)
    }
  }
)

t.test('what SQL is told of a move is what the table says', async t => {
  for (const name of moveNames) {
    const { from, to } = moves[name]
    t.equal(effects[name].fromBits, stateBits(from), name)
    t.equal(effects[name].status, statusNumber[statusOf(to)], name)
    t.equal(effects[name].phase, phaseOf(to), name)
    t.equal(effects[name].status === 0, effects[name].phase !== null, `${name}: SENDING has a phase`)
  }
})

// tap runs the tests in the folder of package.json
t.test('docs/states.md is what the table prints', async t => {
  t.equal(readFileSync('docs/states.md', 'utf8'), printStates())
})

// All events that need a decision. The owners of a delivery decide on them, in any order.
const happenings: DeliveryEvent[] = [
  { kind: 'delivered' },
  { kind: 'delivered', handled: true },
  { kind: 'refused', reason: 'no' },
  { kind: 'failed', reason: 'http_503' },
  { kind: 'shutdown' },
  { kind: 'lost', mayHaveBeenSent: true },
  { kind: 'lost', mayHaveBeenSent: false },
  { kind: 'no_receipt' },
  { kind: 'receipt', result: 'RETRY' },
  { kind: 'receipt', result: 'FAILED' }
]
type Event = { do: 'happen'; what: DeliveryEvent } | { do: 'move'; name: MoveName; back: number }
const event: fc.Arbitrary<Event> = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom(...happenings).map(what => ({ do: 'happen' as const, what })) },
  { weight: 3, arbitrary: fc.constant({ do: 'move' as const, name: 'claim' as const, back: 0 }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('move' as const),
      name: fc.constantFrom<MoveName>(
        'receive',
        'extend',
        'redeliver',
        'repeat',
        'delete',
        'release',
        'unblock'
      ),
      back: fc.integer({ min: 0, max: 3 })
    })
  }
)

const policy: Policy = {
  times: undefined,
  backoff: { kind: 'exponential', firstMs: 10_000, maxMs: 3_600_000 },
  receiptTimeoutMs: 60_000
}

t.test('whatever happens, in whatever order, a delivery keeps its promises', async () => {
  const story = fc.tuple(
    fc.integer({ min: 1, max: 5 }),
    fc.boolean(),
    fc.boolean(),
    fc.array(event, { maxLength: 60 })
  )
  fc.assert(
    fc.property(story, ([retryTimes, needsReceipt, isBlocked, events]) => {
      let now: DeliveryState = {
        state: isBlocked ? 'BLOCKED' : 'WAITING',
        attempt: 0,
        triesLeft: retryTimes,
        lost: 0,
        roundFrom: 1
      }
      let rounds = 1
      let claims = 0
      let free = 0
      for (const one of events) {
        let move: { name: MoveName; attempt: number; retryTimes?: number }
        if (one.do === 'move') {
          move = {
            name: one.name,
            attempt: Math.max(0, now.attempt - one.back),
            retryTimes: effectiveRetryTimes(retryTimes, policy)
          }
        } else {
          // Answers and lost leases happen only IN_FLIGHT. Receipts and missing receipts happen only AWAITING_RECEIPT.
          const { what } = one
          const owed = what.kind === 'no_receipt' || what.kind === 'receipt'
          if (now.state !== (owed ? 'AWAITING_RECEIPT' : 'IN_FLIGHT')) continue
          const decision = decide(what, { ...now, needsReceipt, retryTimes }, policy, 0.5)
          move = { name: decision.move, attempt: now.attempt }
        }
        const after = apply(now, move)
        if (!after) continue
        if (move.name === 'claim') claims++
        if (move.name === 'release' || move.name === 'lose') free++
        if (move.name === 'redeliver' || move.name === 'repeat') rounds++
        if (after.attempt < now.attempt) throw new Error('an attempt number fell')
        if (after.triesLeft < 0) throw new Error('more tries than it had')
        // Otherwise a CHECK of PostgreSQL would refuse the claim and its whole batch.
        if (after.state === 'WAITING' && after.triesLeft < 1)
          throw new Error('it waits for a try that it has not')
        if (after.roundFrom > after.attempt + 1) throw new Error('a round from the future')
        now = after
      }
      if (claims - free > retryTimes * rounds) throw new Error('more counted tries than the limit')
    }),
    { numRuns: 2_000 }
  )
})
