// A transfer, as its customer orders it and as the banks tell each other of it.
import { z } from 'ackbox/handler'

const bank = z.enum(['a', 'b'])
export type Bank = z.infer<typeof bank>

export const transferSchema = z.object({
  /** Chosen by the customer, once for each transfer: the same id again is the same transfer. */
  transferId: z.string().regex(/^[A-Za-z0-9-]{1,64}$/),
  fromBank: bank,
  from: z.string(),
  toBank: bank,
  to: z.string(),
  cents: z.int().positive()
})
export type Transfer = z.infer<typeof transferSchema>

/** SENT: the money has left. REFUSED: it has not, and never will under this id. */
export type Answer = { state: 'SENT' } | { state: 'REFUSED'; reason: string }
