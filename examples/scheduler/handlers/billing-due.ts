import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'billing.due',
  body: z.object({ tick: z.iso.datetime() }),
  downstreams: {
    billing: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.BILLING_URL}/due`, body: raw }),
      needCallback: true,
      receiptTimeout: '5s',
      retry: { times: 100, backoff: ['200ms', '500ms', '1s'] },
      limit: { timeout: '3s' }
    }
  }
})
