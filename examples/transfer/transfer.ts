// A transfer, as the customer orders it and as the banks send it to each other.
import { z } from 'ackbox/handler'

const bank = z.enum(['a', 'b'])
export type Bank = z.infer<typeof bank>

export const transferSchema = z.object({
  /** The customer chooses it, once per transfer: a request with the same id is the same transfer. */
  transferId: z.string().regex(/^[A-Za-z0-9-]{1,64}$/),
  fromBank: bank,
  from: z.string(),
  toBank: bank,
  to: z.string(),
  cents: z.int().positive()
})
export type Transfer = z.infer<typeof transferSchema>

/** SENT: the money has left the account. REFUSED: it has not, and never will under this id. */
export type Answer = { state: 'SENT' } | { state: 'REFUSED'; reason: string }
