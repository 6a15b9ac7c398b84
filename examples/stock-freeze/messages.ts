// The messages between the stock, the orders and Ackbox.
import { z } from 'ackbox/handler'

const orderId = z.string().regex(/^[A-Za-z0-9-]{1,64}$/)

/** An order as the customer places it. The freeze of its stock has the same id. */
export const placed = z.object({
  orderId,
  sku: z.string(),
  quantity: z.int().positive(),
  cents: z.int().positive(),
  /** How long the stock is frozen for a customer who does not pay. */
  limitMs: z.int().positive()
})
export type Placed = z.infer<typeof placed>

export const freezeDue = z.object({ orderId })
export const paymentStarted = z.object({ orderId })
export const paymentEnded = z.object({ orderId, isPaid: z.boolean() })

/** Many tries in quick succession, since programs are killed in this example. */
export const retry = { times: 100, backoff: ['200ms' as const, '500ms' as const, '1s' as const] }

export type OrderState = 'UNPAID' | 'PAYING' | 'PAID' | 'CLOSED'
export interface OrderAnswer {
  state: OrderState
  /** Why it is CLOSED. */
  reason?: 'OUT_OF_STOCK' | 'FREEZE_RELEASED' | 'PAYMENT_FAILED'
}
