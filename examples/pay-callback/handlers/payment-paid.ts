import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'payment.paid',
  body: z.object({ payment: z.int(), cents: z.int() }),
  downstreams: {
    orders: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.ORDERS_URL}/paid`, body: raw }),
      // A 2xx is not enough: the delivery is HANDLED when the merchant's receipt confirms the booking.
      needCallback: true,
      receiptTimeout: '5s',
      retry: { times: 100, backoff: ['200ms', '500ms', '1s'] },
      limit: { timeout: '3s' }
    }
  }
})
