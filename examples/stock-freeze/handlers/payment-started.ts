import { defineHandler, env, url } from 'ackbox/handler'
import { paymentStarted, retry } from '../messages.ts'

/** A customer wants to pay: the freeze is checked, then the money is taken. Delivered until that has ended one way or the other. */
export default defineHandler({
  messageCode: 'payment.started',
  body: paymentStarted,
  downstreams: {
    orders: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.ORDERS_URL}/ackbox/payment-started`, body: raw }),
      retry
    }
  }
})
