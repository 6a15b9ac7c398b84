import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'order.paid',
  body: z.object({ points: z.int() }),
  downstreams: {
    points: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.TEST_RECEIVER}/points`, body: raw }),
      needCallback: true,
      receiptTimeout: '60s',
      retry: { times: 20, backoff: ['100ms'] }
    }
  }
})
