import { defineHandler, env, url, z } from 'ackbox/handler'

export default defineHandler({
  messageCode: 'payment.sign',
  body: z.object({ payment: z.int() }),
  downstreams: {
    contracts: {
      transport: 'http',
      request: ({ raw }) => ({ url: url`${env.CONTRACTS_URL}/sign`, body: raw }),
      needCallback: true,
      receiptTimeout: '5s',
      retry: { times: 100, backoff: ['200ms', '500ms', '1s'] },
      limit: { timeout: '3s' }
    }
  }
})
