import { defineHandler, env, url } from 'ackbox/handler'
import { paymentEnded, retry } from '../messages.ts'

/** Ends the freeze: sold if the order is paid, released (the compensation) if the payment failed. */
export default defineHandler({
  messageCode: 'payment.ended',
  body: paymentEnded,
  downstreams: {
    stock: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.STOCK_URL}/ackbox/payment-ended`, body: raw }),
      retry
    }
  }
})
