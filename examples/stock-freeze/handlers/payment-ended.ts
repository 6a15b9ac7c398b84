import { defineHandler, env, url } from 'ackbox/handler'
import { paymentEnded, retry } from '../messages.ts'

/** The job that turns the freezes of paid orders to sold; of a payment that failed it is the compensation. */
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
