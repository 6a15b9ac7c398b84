// Services that are broken on purpose: the model must find what is wrong with each.
import { apply } from '../src/domain/apply.ts'
import { defined } from '../src/domain/optional-members.ts'
import { deliveryModel, type Broken, type DeliveryOptions } from './delivery.ts'
import { explorable, type Explorable } from './explore.ts'
import { halfModel, type HalfBroken } from './half-message.ts'
import { orderingModel, type OrderingBroken } from './ordering.ts'

export interface Variant extends Explorable {
  /** The beginning of the property that it breaks. */
  breaks: string
}

const small: DeliveryOptions = { needsReceipt: true, tries: 1, mostAttempts: 2, faults: [] }

const delivery = (
  name: string,
  breaks: string,
  broken: Broken,
  more: Partial<DeliveryOptions> = {}
): Variant => ({ ...explorable(deliveryModel({ ...small, ...more, broken })), name, breaks })

const ordering = (name: string, breaks: string, broken: OrderingBroken): Variant => ({
  ...explorable(orderingModel({ skips: false, crashes: 1, acts: 1, broken })),
  name,
  breaks
})

const half = (name: string, breaks: string, broken: HalfBroken): Variant => ({
  ...explorable(halfModel(broken)),
  name,
  breaks
})

export const variants: readonly Variant[] = [
  delivery('a worker sends before its claim is committed', 'I13', { sendsBeforeClaim: true }),
  delivery('a worker loads what its job names, without a look at the row', 'I14', { readsAnything: true }),
  delivery('an outcome is written without its attempt number', 'I17', { writesAnyAttempt: true }),
  delivery('no move looks at its attempt number', 'I', {
    apply: (row, move, written) => apply(row, { ...move, attempt: row.attempt }, written)
  }),
  delivery('no move looks at the state that was read', 'I17', {
    apply(row, move, written) {
      const { name, attempt, overdue, owner, afterMs, reason } = move
      return apply(row, { name, attempt, ...defined({ overdue, owner, afterMs, reason }) }, written)
    }
  }),
  delivery('the dispatcher trusts the clock that it read', 'I32', {
    apply: (row, move, written) => apply(row, { ...move, overdue: false }, written)
  }),
  delivery('the dispatcher withdraws what another process has taken', 'I16', { withdrawsFromOthers: true }),
  delivery('a lost lease counts as never sent', 'I', { forgetsSends: true }, { mostAttempts: 4 }),
  delivery('a receipt is answered before it is written', 'I24', { answersFirst: true }),
  delivery(
    'a receipt of an earlier round counts',
    'I',
    {
      apply: (row, move, written) =>
        apply(move.name === 'receive' ? { ...row, roundFrom: 1 } : row, move, written)
    },
    { faults: ['operator'] }
  ),
  delivery(
    'a receipt is taken twice',
    'I26',
    {
      apply: (row, move, written) =>
        move.name === 'receive' && row.state === 'HANDLED'
          ? apply({ ...row, state: 'FAILED' }, { name: 'receive', attempt: move.attempt }, written)
          : apply(row, move, written)
    },
    { faults: ['lostAnswer'] }
  ),
  delivery('what FAILED is tried again by a late worker', 'I17', {
    apply: (row, move, written) =>
      move.name === 'retry' && row.state === 'FAILED'
        ? apply({ ...row, state: 'IN_FLIGHT' }, { name: 'retry', attempt: row.attempt, afterMs: 1 }, written)
        : apply(row, move, written)
  }),
  delivery(
    'a write whose answer was lost counts again',
    'D8',
    { countsTwice: true },
    { faults: ['lostAnswer'] }
  ),
  delivery('no dispatcher', 'an end is reachable', { hasNoDispatcher: true }, { faults: ['crash'] }),
  ordering('the rows of promotion are deleted after the look', 'an end is reachable', { deletesLate: true }),
  ordering('the rows of promotion are gone before the look is done', 'an end is reachable', {
    forgetsAtCrash: true
  }),
  ordering('promote trusts what it read before the lock', 'I27', { trustsLook: true }),
  ordering('a position is taken without the lock of the key', 'O', { acceptsUnlocked: true }),
  ordering('the next one goes when its head is sent', 'O1', { promotesAtSend: true }),
  ordering('promote does not ask for `after`', 'O4', { ignoresAfter: true }),
  half('a check that finds nothing leaves no row', 'P4', { hasNoBarrier: true }),
  half('the barrier is written outside the work', 'P4', { barrierOutside: true }),
  half('UNKNOWN commits', 'P3', { guesses: true }),
  half('an end does not look whether it has ended', 'P3', { endsTwice: true })
]
