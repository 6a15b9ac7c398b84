// Compares the stock with the orders, while orders are in progress and at the end.
import type { OrderState } from './messages.ts'

/** Rows of one of the databases. */
export type Rows = <Row>(query: string) => Promise<Row[]>

interface Shelf {
  sku: string
  initial: number
  available: number
  frozen: number
  sold: number
}
interface Freeze {
  orderId: string
  sku: string
  quantity: number
  state: 'FROZEN' | 'RELEASED_SOLD' | 'RELEASED_UNSOLD'
}
interface Order {
  orderId: string
  sku: string
  quantity: number
  state: OrderState
  /** Whether the provider has charged the customer. */
  isCharged: boolean
}
export interface Books {
  shelves: readonly Shelf[]
  freezes: readonly Freeze[]
  orders: readonly Order[]
}

/** Two databases have no common snapshot: the stock is read first, then the orders, each by one statement. */
export async function readBooks(stock: Rows, orders: Rows): Promise<Books> {
  const [stocked] = await stock<Pick<Books, 'shelves' | 'freezes'>>(
    `select (select json_agg(s) from stock s) as shelves,
       (select coalesce(json_agg(f), '[]') from (select order_id as "orderId", sku, quantity, state from stock_freeze) f) as freezes`
  )
  if (stocked === undefined) throw new Error('a select without a row')
  const ordered = await orders<Order>(
    `select order_id as "orderId", sku, quantity, state, coalesce(is_taken, false) as "isCharged"
     from customer_order left join provider_charge on key = order_id`
  )
  return { ...stocked, orders: ordered }
}

/** The violations: each line is stock that is lost or sold twice, or a wrong charge. It is empty at any moment if all is right. */
export function wrongs({ shelves, freezes, orders }: Books): string[] {
  const orderOf = new Map(orders.map(one => [one.orderId, one]))
  const sum = (of: string, state: Freeze['state']): number =>
    quantities(freezes.filter(one => one.sku === of && one.state === state))
  return [
    ...shelves.flatMap(({ sku, initial, available, frozen, sold }) => [
      ...(available + frozen + sold === initial
        ? []
        : [`${sku}: ${available} available, ${frozen} frozen and ${sold} sold are not ${initial}`]),
      ...(frozen === sum(sku, 'FROZEN') && sold === sum(sku, 'RELEASED_SOLD')
        ? []
        : [`${sku}: ${frozen} frozen and ${sold} sold are not what its freezes say`])
    ]),
    ...freezes.flatMap(({ orderId, sku, quantity, state }) => {
      const order = orderOf.get(orderId)
      const isPaid = order?.state === 'PAID' && order.sku === sku && order.quantity === quantity
      if (state === 'RELEASED_SOLD' && !isPaid) return [`${orderId} is sold and not paid`]
      if (state === 'RELEASED_UNSOLD' && isPaid) return [`${orderId} is paid and its stock released`]
      return []
    }),
    ...orders.flatMap(({ orderId, state, isCharged }) => {
      if (state === 'PAID' && !isCharged) return [`${orderId} is paid and not charged`]
      if (isCharged && state !== 'PAID' && state !== 'PAYING') return [`${orderId} is ${state} and charged`]
      return []
    })
  ]
}

/** The orders in progress. Empty: nothing is frozen, and every order is PAID or CLOSED. */
export function underWay({ freezes, orders }: Books): string[] {
  return [
    ...freezes.filter(one => one.state === 'FROZEN').map(one => one.orderId),
    ...orders.filter(one => one.state === 'UNPAID' || one.state === 'PAYING').map(one => one.orderId)
  ]
}

export const soldOf = ({ shelves }: Books): number => shelves.reduce((sum, { sold }) => sum + sold, 0)
export const paidOf = ({ orders }: Books): number => quantities(orders.filter(one => one.state === 'PAID'))

const quantities = (of: readonly { quantity: number }[]): number =>
  of.reduce((sum, { quantity }) => sum + quantity, 0)
