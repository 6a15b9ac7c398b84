import { defineHandler, env, url } from 'ackbox/handler'
import { paymentStarted, retry } from '../messages.ts'

/** A customer wants to pay: the freeze is checked, then the customer is charged. Delivered until the payment has succeeded or failed. */
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
